"""Merge installed packs into a wiki of Markdown pages, and keep it so when they are upgraded.

    with open_wiki() as wiki:
        plan = compute_plan(packs, wiki, today="2026-04-21")     # nothing is written
        apply_plan(plan, wiki)

`merge` is the text, `wiki` the disk, `plan` what joins them. Running it again changes nothing; an upgraded pack
replaces its own sections, and no text of anybody else.

Source: AMP v0.4, Part 12.
"""
