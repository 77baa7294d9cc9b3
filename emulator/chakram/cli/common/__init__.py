"""Options, tables and progress bars that several verbs share."""
