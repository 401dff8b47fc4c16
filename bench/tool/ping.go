package tool

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lazyregexp"
)

var pingEngines = []bench.Engine{{
	Name: "ping", Tool: toolPing, About: "time of an ICMP echo there and back, and how many are lost",
	Suite:   bench.SuiteTCP,
	Program: "ping", Package: "iputils-ping", VersionCommand: []string{"ping", "-V"}, Plugin: ping{},
	Measures: []string{bench.MetricLatencyMin, bench.MetricLatencyAverage, bench.MetricLatencyMax,
		bench.MetricLatencyStdev, bench.MetricLoss},
}}

type ping struct{ noSetup }

// One echo every 0.2 s: the shortest interval that ping allows all users.
const (
	pingCount      = 20
	pingQuickCount = 5
)

// pingBytes is on Ethernet: 84 of IP, and the parts of packetBytes before UDP.
const pingBytes = 84 + 8 + 14 + 4 + 12

// Traffic implements Carrier.
func (ping) Traffic() bench.Traffic { return bench.Traffic{Echo: pingBytes} }

func (ping) Check(_, _ bench.Endpoint, o bench.Options) error {
	if o.Iterations < 0 {
		return fmt.Errorf("%d echoes is below zero", o.Iterations)
	}
	return nil
}

func (p ping) Client(_, server bench.Endpoint, o bench.Options) []string {
	return []string{"ping", "-c", strconv.Itoa(p.echoes(o)), "-i", "0.2", server.Addr.String()}
}

func (ping) echoes(o bench.Options) int {
	switch {
	case o.Iterations > 0:
		return o.Iterations
	case o.Quick:
		return pingQuickCount
	}
	return pingCount
}

func (p ping) Duration(o bench.Options) time.Duration {
	return time.Duration(p.echoes(o)) * 200 * time.Millisecond
}

// Failure is nil if some echoes were lost: the figures say how many.
func (ping) Failure(exit *bench.ExitError, parseErr error) error {
	if exit.Code == 1 && parseErr == nil {
		return nil
	}
	return alsoPrinted(exit, parseErr)
}

func (ping) Parse(out bench.Output, _ bench.Options) ([]bench.Figure, error) {
	return ParsePing(out.Stdout)
}

// iputils prints "5 packets transmitted, 5 received, 0% packet loss, time 808ms", with "+2 errors" or "+1 duplicates"
// before the loss, and busybox "3 packets transmitted, 3 packets received, 0% packet loss"; iputils "rtt
// min/avg/max/mdev = ..." and busybox "round-trip min/avg/max = ...".
var (
	pingCounts = lazyregexp.New(`^([0-9]+) packets transmitted, ([0-9]+) (?:packets )?received(.*)$`)
	pingLoss   = lazyregexp.New(`^(?:, \+([0-9]+) errors)?, [0-9.]+% packet loss(?:, time [0-9]+ms)?$`)
	pingTimes  = lazyregexp.New(`^(?:rtt|round-trip) ([a-z/]+) = (\S+) ms(?:, pipe [0-9]+)?$`)
)

// ParsePing reads iputils or busybox, in us. Some lost echoes are a result, but no reply or a duplicate is a failure.
func ParsePing(output []byte) ([]bench.Figure, error) {
	var sent, received int64
	var times []bench.Figure
	err := bench.EachLine(toolPing, output, func(line string) (err error) {
		line = strings.TrimSpace(line)
		switch {
		case strings.Contains(line, "packets transmitted") && sent != 0:
			return errors.New("a second summary")
		case strings.Contains(line, "packets transmitted"):
			sent, received, err = pingSummary(line)
		case strings.HasPrefix(line, "rtt "), strings.HasPrefix(line, "round-trip "):
			if sent == 0 || times != nil {
				return errors.New("times without their summary")
			}
			times, err = pingRow(line, received)
		case sent != 0 && line != "":
			return errors.New("unknown line below the summary")
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case times == nil:
		return nil, bench.BadOutput(toolPing, output, "the line with the times is missing")
	}
	return append(times, newFigure(bench.MetricLoss, 0, sent, 100*float64(sent-received)/float64(sent))), nil
}

// pingSummary refuses duplicates: their times would come from two machines.
func pingSummary(line string) (sent, received int64, err error) {
	m := pingCounts().FindStringSubmatch(line)
	switch {
	case m == nil:
		return 0, 0, errors.New("unknown form of the summary")
	case strings.Contains(m[3], "duplicates"):
		return 0, 0, errors.New("an echo came back twice: two nodes have the address, or the network has a loop")
	case !pingLoss().MatchString(m[3]):
		return 0, 0, errors.New("unknown form of the summary")
	}
	if sent, err = parseCount(m[1]); err != nil {
		return 0, 0, fmt.Errorf("packets sent: %w", err)
	}
	if received, err = parseCount(m[2]); err != nil {
		return 0, 0, errors.New("no echo came back")
	}
	// Some replies belong to another process or are unmarked duplicates.
	if received > sent {
		return 0, 0, errors.New("more echoes came back than were sent")
	}
	return sent, received, nil
}

// pingColumns are in ms.
var pingColumns = []column{
	{title: "min", metric: bench.MetricLatencyMin, scale: 1000},
	{title: "avg", metric: bench.MetricLatencyAverage, scale: 1000},
	{title: "max", metric: bench.MetricLatencyMax, scale: 1000},
	// below the last decimal, or one echo
	{title: "mdev", metric: bench.MetricLatencyStdev, scale: 1000, mayBeZero: true},
}

func pingRow(line string, received int64) ([]bench.Figure, error) {
	m := pingTimes().FindStringSubmatch(line)
	if m == nil {
		return nil, errors.New("unknown form of the times")
	}
	cols, err := columnsOf(strings.Split(m[1], "/"), pingColumns)
	if err != nil {
		return nil, err
	}
	row, err := makeRow(cols, strings.Split(m[2], "/"), Row{Iterations: received})
	if err != nil {
		return nil, err
	}
	value := make(map[string]float64)
	for _, f := range row.Figures {
		value[f.Metric] = f.Value
	}
	// busybox has no mdev.
	low, average, high := value[bench.MetricLatencyMin], value[bench.MetricLatencyAverage],
		value[bench.MetricLatencyMax]
	switch {
	case low == 0 || average == 0 || high == 0: // 0 is not a valid time
		return nil, errors.New("min, avg or max is missing")
	case low > average || average > high:
		return nil, errors.New("the times are not in order")
	}
	return row.Figures, nil
}
