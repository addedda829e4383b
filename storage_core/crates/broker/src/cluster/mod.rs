//! What this node knows of its cluster, for whoever must ask before it acts.

mod known;
