"""AMP packs: an agent's memory as a signed folder that is checked, installed, inspected and taken apart again.

    folder -> tree -> gates -> manifest -> grammar -> validation, scan -> signature -> install

Nothing here imports web3 or Ape, and nothing is imported that a command does not use: import the modules by name, as
`melete.packs.validation`.

Source: AMP v0.4.
"""
