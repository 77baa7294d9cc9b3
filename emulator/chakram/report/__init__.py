"""Report pages: self-contained HTML files with plots that need no network."""
