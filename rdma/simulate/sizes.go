package simulate

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/lab"
)

// share is a part of a whole, written 30%.
type share float64

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *share) UnmarshalText(text []byte) error {
	number, percent := strings.CutSuffix(string(text), "%")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !percent || !(v > 0 && v < 100) {
		return fmt.Errorf("share %q (want more than 0%%, less than 100%%)", text)
	}
	*s = share(v / 100)
	return nil
}

// sizes is a distribution of sizes, as points of its cumulative form that rise in both values. Between two points it
// is a straight line.
type sizes []sizePoint

// A sizePoint says which share of messages has at most a number of bytes.
type sizePoint struct{ bytes, share float64 }

// published are distributions of message sizes: of a cluster that answers web searches (Alizadeh and others, DCTCP,
// SIGCOMM 2010), and of a Hadoop cluster (Roy and others, SIGCOMM 2015), with points as simulations of HPCC use them.
var published = map[string]sizes{
	"websearch": {{0, 0}, {10e3, .15}, {20e3, .20}, {30e3, .30}, {50e3, .40}, {80e3, .53}, {200e3, .60}, {1e6, .70},
		{2e6, .80}, {5e6, .90}, {10e6, .97}, {30e6, 1}},
	"hadoop": {{0, 0}, {100, .01}, {200, .02}, {300, .05}, {350, .15}, {400, .20}, {500, .30}, {600, .40}, {700, .50},
		{1e3, .60}, {2e3, .67}, {7e3, .70}, {30e3, .72}, {50e3, .82}, {80e3, .87}, {120e3, .90}, {300e3, .95},
		{1e6, .975}, {2e6, .99}, {10e6, 1}},
}

// readSizes reads a distribution from a file: a line for each point, with bytes, and the percentage of messages that
// have at most these. Lines after # are comments.
func readSizes(text []byte) (list sizes, err error) {
	line := 0
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		line++
		w := strings.Fields(s.Text())
		if len(w) == 0 || w[0][0] == '#' {
			continue
		}
		if len(w) != 2 {
			return nil, fmt.Errorf("line %d: %s (want bytes and a percentage)", line, strconv.Quote(clip(s.Text())))
		}
		size, err1 := strconv.ParseFloat(w[0], 64)
		percent, err2 := strconv.ParseFloat(strings.TrimSuffix(w[1], "%"), 64)
		p := sizePoint{size, percent / 100}
		switch {
		case err1 != nil || err2 != nil || !(size >= 0 && size <= float64(maxBytes) && percent >= 0 && percent <= 100):
			return nil, fmt.Errorf("line %d: %s (want bytes up to %v and a percentage)", line,
				strconv.Quote(clip(s.Text())), maxBytes)
		case len(list) > 0 && (p.bytes <= list[len(list)-1].bytes || p.share <= list[len(list)-1].share):
			return nil, fmt.Errorf("line %d: %s (want more bytes and a higher percentage than before)", line,
				strconv.Quote(clip(s.Text())))
		}
		list = append(list, p)
	}
	switch {
	case len(list) < 2:
		return nil, fmt.Errorf("too few sizes (have %d, want 2 or more)", len(list))
	case list[0].share != 0:
		return nil, fmt.Errorf("the first size has %v%% (want 0%%)", 100*list[0].share)
	case list[len(list)-1].share != 1:
		return nil, fmt.Errorf("the last size has %v%% (want 100%%)", 100*list[len(list)-1].share)
	}
	return list, nil
}

// clip shortens a line for a message.
func clip(line string) string { return line[:min(len(line), 60)] }

// mean returns the mean size.
func (s sizes) mean() (sum float64) {
	for i := 1; i < len(s); i++ {
		sum += (s[i].bytes + s[i-1].bytes) / 2 * (s[i].share - s[i-1].share)
	}
	return max(1, sum)
}

// at returns the size that a share of messages does not exceed.
func (s sizes) at(q float64) int64 {
	for i := 1; i < len(s); i++ {
		if a, b := s[i-1], s[i]; q <= b.share {
			return max(1, int64(math.Round(a.bytes+(b.bytes-a.bytes)*(q-a.share)/(b.share-a.share))))
		}
	}
	return max(1, int64(s[len(s)-1].bytes))
}

// gap returns the mean time between two messages of a host.
func (t *Traffic) gap(speed rate) float64 {
	return 8e9 * t.sizes.mean() / (float64(t.Load) * float64(speed))
}

// arrivals returns flows that arrive at each host as a Poisson process, so that they load its link as the entry says,
// each to another host, all equally often.
func (c *Config) arrivals(t *Traffic, hosts int, draw *rand.Rand) (list []spec) {
	gap := t.gap(c.Topology.Rate)
	for from := range hosts {
		for at := draw.ExpFloat64() * gap; at < float64(t.For); at += draw.ExpFloat64() * gap {
			to := draw.IntN(hosts - 1)
			if to >= from {
				to++
			}
			list = append(list, spec{from: int32(from), to: int32(to), bytes: t.sizes.at(draw.Float64()),
				start: int64(at)})
		}
	}
	return list
}

// readTrace reads a trace: a line for each flow, with its start, source, destination and bytes. Lines after # are
// comments.
func readTrace(text []byte, hosts map[string]int, end time.Duration) (list []spec, err error) {
	line := 0
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		line++
		w := strings.Fields(s.Text())
		if len(w) == 0 || w[0][0] == '#' {
			continue
		}
		f, why := traceLine(w, hosts, end)
		if why != "" {
			return nil, fmt.Errorf("line %d: %s (want %s)", line, strconv.Quote(clip(s.Text())), why)
		}
		if list = append(list, f); len(list) > maxFlows {
			return nil, fmt.Errorf("line %d: too many flows (want at most %d)", line, maxFlows)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no flows")
	}
	return list, nil
}

// traceLine reads a flow of a trace, or returns what is wanted instead.
func traceLine(w []string, hosts map[string]int, end time.Duration) (f spec, want string) {
	if len(w) != 4 {
		return f, "start, source, destination and bytes, such as 12.5us h0 h3 1MiB"
	}
	start, err := time.ParseDuration(w[0])
	if err != nil || start < 0 || start >= end {
		return f, "a start such as 12.5us, before the end at " + end.String()
	}
	from, okFrom := hosts[w[1]]
	to, okTo := hosts[w[2]]
	if !okFrom || !okTo || from == to {
		return f, "two different hosts, as the topology names them"
	}
	var size lab.Bytes
	if n, err := strconv.ParseInt(w[3], 10, 64); err == nil {
		size = lab.Bytes(n)
	} else if err := size.UnmarshalText([]byte(w[3])); err != nil {
		return f, "bytes, such as 4096 or 1MiB"
	}
	if size < 1 || size > maxBytes {
		return f, "1B to " + maxBytes.String()
	}
	return spec{from: int32(from), to: int32(to), bytes: int64(size), start: int64(start)}, ""
}
