"""One file per collective algorithm, libraries that choose, and the fabric that turns messages into link usage."""
