"""Running maintenance: a routine for each layer, a journal that survives a kill, and one record for each cycle.

    runner = MaintenanceRunner(outbox, subject, routines, journal_path)
    runner.run(Trigger.SCHEDULED)      # runs the routines, and puts the report into the outbox
    submitter.run()                    # sends what the outbox holds
    runner.resume()                    # says what became of it; also what to call after a kill

`runner` runs, `routine` is what a routine is made of, `journal` is the marker of what is not registered yet.
"""
