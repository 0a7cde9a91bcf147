"""Files, directories and objects: written atomically, read with checksums."""
