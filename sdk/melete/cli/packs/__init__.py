"""The commands of `amp`, a file each. A command's module is imported when the command runs."""
