"""What this package adds to the command line: one module per verb."""

VERBS = {
    "reproduce": "rerun the papers' tables and figures",
    "tables": "compute the papers' tables: printed values beside ours",
}
