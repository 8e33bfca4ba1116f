"""The command line: `melete NOUN VERB`. A command's module is imported when the command runs."""
