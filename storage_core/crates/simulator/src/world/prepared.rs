//! What a cluster has done before the events begin, which would take many of them to come about.

use super::*;

impl World {
    /// Writes [`Setting::written`] batches to each of the first [`Setting::sealed`] segments, which end, or else to the open one.
    pub(super) fn prepare(&mut self, first: SegmentId) -> Checked {
        if self.setting.sealed == 0 {
            return self.write_everywhere(first);
        }
        let mut open = first;
        for _ in 0..self.setting.sealed {
            self.write_everywhere(open)?;
            self.roll(open)?;
            self.deliver_all(open)?;
            self.publish(open)?;
            open = self.last_segment().expect("published");
            self.open(open)?;
            self.do_all_chores()?;
        }
        Ok(())
    }

    fn write_everywhere(&mut self, segment: SegmentId) -> Checked {
        for _ in 0..self.setting.written {
            self.append(segment)?;
        }
        self.deliver_all(segment)
    }

    /// Delivers messages, and syncs the copies of a segment, until nothing is on the way.
    fn deliver_all(&mut self, segment: SegmentId) -> Checked {
        let replicas: Vec<NodeId> =
            self.descriptor(segment).replicas.iter().map(|replica| replica.node).collect();
        while !self.outbox.is_empty() {
            for flight in std::mem::take(&mut self.outbox) {
                self.deliver(&flight, None)?;
            }
            for node in &replicas {
                let held = self.node(*node).held.get(&segment);
                if held.is_some_and(|held| held.stored.synced < held.stored.batches.len()) {
                    self.sync(*node, segment)?;
                }
            }
        }
        Ok(())
    }

    fn do_all_chores(&mut self) -> Checked {
        let nodes: Vec<NodeId> = self.nodes.iter().map(|node| node.id).collect();
        for node in nodes {
            self.renew(node)?;
            while let Some(chore) = self.chores(node, &self.metadata).pop() {
                let known = Arc::clone(&self.metadata);
                self.do_chore(node, &known, &chore)?;
            }
        }
        Ok(())
    }
}
