package planner

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/rackless/rackless/inspect"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/parallel"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/fleet"
	"github.com/rackless/rackless/topology"
)

// maxRequest bounds a line of requests, in bytes; it is the bound of a lab file.
const maxRequest = lab.MaxFileSize

// A FleetAnswer is a line of what plan --fleet prints as JSON, see docs/json.md.
type FleetAnswer struct {
	Request string      `json:"request"`
	Line    int         `json:"line"`
	Host    string      `json:"host,omitempty"`
	Cost    *int64      `json:"cost,omitempty"`
	Ideal   *int64      `json:"ideal_cost,omitempty"` // on an empty host of the same kind
	Optimal *bool       `json:"optimal,omitempty"`    // on this host
	Nodes   []plan.Node `json:"nodes,omitempty"`
	Release bool        `json:"release,omitempty"`
	Error   string      `json:"error,omitempty"`
}

// A FleetSummary is the last line.
type FleetSummary struct {
	Summary fleet.Counts `json:"summary"`
	Refused int          `json:"refused"`
	// Times of requests from the line as text to the line of the answer, without reading the hosts.
	Milliseconds struct {
		P50 float64 `json:"p50"`
		P99 float64 `json:"p99"`
		Max float64 `json:"max"`
		All float64 `json:"all"`
	} `json:"milliseconds"`
}

// ReadFleet reads the hosts of a directory, on all cores. A *RequestError says that the directory or
// the policy is wrong.
func ReadFleet(ctx context.Context, dir, policy string) (*fleet.Fleet, error) {
	files, err := inspect.List(dir)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("--fleet %s: no directory with snapshots of hosts", dir)
	}
	if err != nil {
		return nil, request(err)
	}
	f, err := fleet.New(policy)
	if err != nil {
		return nil, request(err)
	}
	type read struct {
		name string
		host *topology.Host
		err  error
	}
	err = parallel.InOrder(ctx, files, func(ctx context.Context, file string) read {
		h, err := inspect.ReadFile(ctx, file)
		return read{file, h, err}
	}, func(r read) error {
		if r.err != nil {
			return r.err
		}
		return f.Add(r.name, r.host)
	})
	return f, err
}

// A FleetCapacity is what plan --fleet --capacity prints as JSON, see docs/json.md.
type FleetCapacity struct {
	Lab   string       `json:"lab"`
	Fits  int          `json:"fits"` // on all hosts
	Hosts []fleet.Room `json:"hosts"`
}

// Capacity says how many more of a lab the hosts take.
func Capacity(ctx context.Context, f *fleet.Fleet, l *lab.Lab) (c FleetCapacity, err error) {
	c.Lab = l.Name
	c.Hosts, err = f.Capacity(ctx, l)
	c.Fits = lists.Sum(c.Hosts, func(r fleet.Room) int { return r.Fits })
	return c, err
}

// A Stream places requests, one a line, on the hosts of a fleet.
type Stream struct {
	Fleet *fleet.Fleet
	Name  string // of what is read, for messages
	// Encode prints answers for programs, one after another; nil: they are text.
	Encode func(w io.Writer, v any) error
	Prompt bool // somebody waits for each answer: do not keep it back
}

// Run answers every request as it comes, then sums up. What has been answered is printed whatever
// comes then. A *RequestError says that a line is no request.
func (s Stream) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	r := fleetRun{Stream: s, out: bufio.NewWriter(out)}
	return r.all(ctx, in)
}

// A fleetRun is one run of a Stream.
type fleetRun struct {
	Stream
	out     *bufio.Writer
	times   []time.Duration // of requests
	refused int
}

func (r *fleetRun) all(ctx context.Context, in io.Reader) (err error) {
	defer func() { err = errors.Join(err, r.out.Flush()) }()
	began := time.Now()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxRequest)
	number := 0
	for lines.Scan() {
		number++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		start := time.Now()
		answer, err := r.one(ctx, number, lines.Bytes())
		if err != nil {
			return err
		}
		if err := r.print(answer); err != nil {
			return err
		}
		if r.Prompt {
			if err := r.out.Flush(); err != nil {
				return err
			}
		}
		r.times = append(r.times, time.Since(start))
	}
	if err := lines.Err(); err != nil {
		return request(fmt.Errorf("%s:%d: %w", r.Name, number+1, err))
	}
	return r.summary(ctx, time.Since(began))
}

// one answers one line: a lab to place, or {"release": "name"}. Only a broken line and an interruption end the stream.
func (r *fleetRun) one(ctx context.Context, number int, line []byte) (FleetAnswer, error) {
	answer := FleetAnswer{Line: number}
	var release struct {
		Name string `json:"release"`
	}
	if bytes.Contains(line, []byte(`"release"`)) && json.Unmarshal(line, &release) == nil && release.Name != "" {
		answer.Request, answer.Release = release.Name, true
		if err := r.Fleet.Release(release.Name); err != nil {
			answer.Error = err.Error()
		}
		return answer, nil
	}
	l, err := lab.Parse(fmt.Sprintf("%s, line %d", r.Name, number), line)
	if err != nil {
		if !bytes.HasPrefix(bytes.TrimSpace(line), []byte("{")) { // as where the file is that of one lab
			err = fmt.Errorf("%w\n--fleet wants one lab a line, as JSON", err)
		}
		return answer, request(err)
	}
	answer.Request = l.Name
	p, err := r.Fleet.Place(ctx, l)
	switch {
	case ctx.Err() != nil:
		return answer, ctx.Err()
	case err != nil:
		r.refused++
		answer.Error = err.Error()
		return answer, nil
	}
	answer.Host, answer.Cost, answer.Optimal = p.Host, &p.Cost, &p.Outcome.Optimal
	if p.Ideal >= 0 {
		answer.Ideal = &p.Ideal
	}
	answer.Nodes = p.Plan.Nodes
	return answer, nil
}

func (r *fleetRun) print(answer FleetAnswer) error {
	if r.Encode != nil {
		return r.Encode(r.out, answer)
	}
	var err error
	switch {
	case answer.Error != "":
		_, err = fmt.Fprintf(r.out, "%s: %s\n", answer.Request, answer.Error)
	case answer.Release:
		_, err = fmt.Fprintf(r.out, "%s: released\n", answer.Request)
	default:
		_, err = fmt.Fprintf(r.out, "%s: %s, cost %d\n", answer.Request, answer.Host, *answer.Cost)
	}
	return err
}

// summary prints how the fleet is used and how long requests took.
func (r *fleetRun) summary(ctx context.Context, all time.Duration) error {
	counts, err := r.Fleet.Count(ctx)
	if err != nil {
		return err
	}
	s := FleetSummary{Summary: counts, Refused: r.refused}
	milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	if len(r.times) > 0 {
		slices.Sort(r.times)
		// The value that so many of a hundred requests do not exceed.
		at := func(percent int) float64 { return milliseconds(r.times[(len(r.times)*percent+99)/100-1]) }
		s.Milliseconds.P50, s.Milliseconds.P99, s.Milliseconds.Max = at(50), at(99), at(100)
	}
	s.Milliseconds.All = milliseconds(all)
	if r.Encode != nil {
		return r.Encode(r.out, s)
	}
	c := s.Summary
	_, err = fmt.Fprintf(r.out, "%s: %s on %d of %d hosts, %d refused; %d GPUs free on hosts in use, %d of them "+
		"stranded; a request took %.2f ms (median), %.2f ms (p99), all %.1f s\n",
		c.Policy, words.Count(c.Labs, "lab"), c.Used, c.Hosts, s.Refused, c.Free, c.Stranded, s.Milliseconds.P50,
		s.Milliseconds.P99, all.Seconds())
	return err
}
