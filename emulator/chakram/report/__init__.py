"""Pages that show results: one HTML file each, with plots, that needs no network."""
