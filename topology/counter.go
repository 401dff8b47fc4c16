package topology

import (
	"slices"
	"strings"
)

// troubleWords are parts of the names of counters that count trouble: errors, discards,
// retransmission and congestion. Each driver has names of its own; the words are those of mlx4,
// mlx5, bnxt_re, irdma, efa, hns and rxe.
var troubleWords = []string{
	"err", "discard", "drop", "retr", "timeout", "downed", "link_error_recovery", "overrun", "integrity", "nak",
	"out_of_", "oos", "missing",
	"mismatch", "exceed", "duplicate", "slow_restart", "cnp", "ecn", "icrc", "lost", "unresponsive",
}

// ordinaryWords are parts of names that have a trouble word in them by chance, or that count what
// belongs to ordinary work: requests are flushed whenever a connection ends.
var ordinaryWords = []string{"deferred", "interrupt", "transferred", "flush_error"}

// IsTrouble reports whether the counter counts trouble.
func IsTrouble(name string) bool {
	within := func(w string) bool { return strings.Contains(strings.ToLower(name), w) }
	return slices.ContainsFunc(troubleWords, within) && !slices.ContainsFunc(ordinaryWords, within)
}
