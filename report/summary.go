package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/record"
)

const emulatedBanner = "Emulated: %s on %s. These figures check the setup, not the hardware."

// bannerOf returns "" if no figure is emulated.
func bannerOf(d record.Record, r *results) string {
	switch {
	case !d.Emulated && r.emulated == 0:
		return ""
	case r.emulated < r.total:
		return fmt.Sprintf("Partly emulated: %d of %s are from an emulated device or CPU and are marked. Those "+
			"check the setup, not the hardware.", r.emulated, words.Count(r.total, "measured value"))
	}
	// The emulator determines which figures are comparable.
	by := "TCG"
	if slices.ContainsFunc(d.Samples, func(s bench.Sample) bool { return s.Accelerator == "kvm" }) {
		by = "KVM"
		if d.EmulatedHost {
			by = "KVM in an emulated host"
		}
	}
	return fmt.Sprintf(emulatedBanner, emulatedNICs(d), by)
}

// allEmulated reports whether no figure is of hardware.
func (r *results) allEmulated(d record.Record) bool {
	return d.Emulated || r.total > 0 && r.emulated == r.total
}

func emulatedNICs(d record.Record) string {
	const soft = "software RoCE (rxe)"
	cards := lists.Count(d.Nodes, func(n record.Node) bool { return strings.HasPrefix(n.RDMADevice, "mlx5_") })
	switch {
	case cards == 0:
		return soft
	case cards < len(d.Nodes):
		return "ConnectX NICs and " + soft
	}
	return "ConnectX NICs"
}

func summaryOf(d record.Record, r *results, unit func(string) string) string {
	if len(r.keys) == 0 {
		if len(r.failures) > 0 {
			return "No measurement succeeded."
		}
		return "Nothing was measured."
	}
	var parts []string
	// Hardware figures are the result even if most pairs are emulated.
	first := r.pairs[0]
	same := lists.Count(r.pairs, func(p pair) bool { return p.Emulated == first.Emulated })
	seen := make(map[string]bool) // one test for each metric
	for _, h := range r.headlines() {
		pairs, repeats := r.over(h, first.Emulated)
		// The first test of a metric is the most wanted one, see compareTests.
		if len(pairs) == 0 || seen[h.Metric] {
			continue
		}
		seen[h.Metric] = true
		m := bench.MetricOf(h.Metric)
		all := spreadOfMedians(repeats)
		text := fmt.Sprintf("%s %s %s %s", h.Test, all.short(all.Median), unit(m.Unit), m.Label)
		if h.Bytes > 0 {
			text += " at " + show.Size(h.Bytes)
		}
		if len(pairs) > 1 {
			text += fmt.Sprintf(" (%s to %s)", all.short(all.Min), all.short(all.Max))
		}
		if part, ok := r.ofWire(h, pairs, repeats); ok && len(d.Judgements) == 0 {
			// judgements already compare with the wire
			least := ""
			if len(pairs) > 1 {
				least = "at least "
			}
			// round down, never up to more than was reached
			text += fmt.Sprintf(", %s%.1f%% of the wire", least, math.Floor(1000*part)/10)
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return fmt.Sprintf("%s measured; the figures are in the tables.", words.Count(len(r.keys), "figure"))
	}
	where := first.String()
	if same > 1 {
		where = fmt.Sprintf("Median of %d pairs", same)
	}
	return where + ": " + strings.Join(parts, "; ") + "."
}

// ofWire returns the smallest share of the wire limit. ok is false if a limit is unknown.
func (r *results) ofWire(h headline, pairs []pair, repeats []spread) (part float64, ok bool) {
	for i, p := range pairs {
		limit := r.limits[figureKey{p, h.Test, h.Bytes, h.Metric}]
		if limit <= 0 {
			return 0, false
		}
		if reached := repeats[i].Median / limit; i == 0 || reached < part {
			part = reached
		}
	}
	return part, len(pairs) > 0
}

func faults(all []finding.Finding) []finding.Finding {
	failed := func(f finding.Finding) bool { return f.Status == finding.Failed }
	bad := finding.NotOK(all)
	return slices.Concat(lists.Filter(bad, failed), slices.DeleteFunc(bad, failed))
}

// FindingsText returns text such as "2 of 30 checks failed, 1 could not be read".
func FindingsText(all []finding.Finding) string {
	ok, failed := finding.Count(all, finding.OK), finding.Count(all, finding.Failed)
	unknown := len(all) - ok - failed // any other status counts as unknown
	switch {
	case len(all) == 0:
		return "No check was made"
	case failed+unknown == 0 && len(all) == 1:
		return "The one check that was made is ok"
	case failed+unknown == 0:
		return fmt.Sprintf("All %d checks are ok", ok)
	}
	var parts []string
	if failed > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s failed", failed, words.Count(len(all), "check")))
	}
	if unknown > 0 {
		parts = append(parts, words.Count(unknown, "check")+" could not be read")
	}
	return strings.Join(parts, ", ")
}
