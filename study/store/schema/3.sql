ALTER TABLE study ADD COLUMN survey TEXT; -- JSON: nodes, machine and checks of the lab, as the first run found it
