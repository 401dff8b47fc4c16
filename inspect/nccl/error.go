package nccl

import "github.com/rackless/rackless/inspect/where"

// An Error is a file that is not a topology, or one that cannot be right.
type Error = where.Error
