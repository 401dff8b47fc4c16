package lspci

import "github.com/rackless/rackless/inspect/where"

// An Error is a text that is not of lspci, or one that cannot be right.
type Error = where.Error
