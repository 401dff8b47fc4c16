package live

import (
	"fmt"
	"strconv"
	"time"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
)

// countText sets thousands apart: counters are long.
func countText(n uint64) string { return show.Grouped(strconv.FormatUint(n, 10)) }

// lasting says how long something lasts or has lasted, as a person says it.
func lasting(d time.Duration) string {
	switch {
	case d < 0:
		return "0 s" // the clock was set back
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return words.Count(int(d.Hours()/24), "day")
}
