package libvirt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	api "github.com/digitalocean/go-libvirt"
	"github.com/prometheus/procfs"

	"github.com/rackless/rackless/internal/lists"
)

// Threads other than virtual CPUs and I/O threads belong to QEMU itself, the emulator.
type Threads struct {
	PID       int   // of QEMU; 0 if the domain is remote
	VCPUs     []int // in order
	IOThreads []int // by libvirt's numbers
}

// Threads asks QEMU, because libvirt itself does not expose threads. libvirt records the use of the monitor in the
// domain's log ("tainted: custom-monitor"); both commands only read.
func (c *Conn) Threads(ctx context.Context, name string) (Threads, error) {
	d, err := c.own(ctx, name)
	if err != nil {
		return Threads{}, err
	}
	if !d.State.Active() {
		return Threads{}, fmt.Errorf("threads of domain %s: it is %s: start it first", name, d.State)
	}
	var t Threads
	out, err := c.monitor(ctx, d.ref, "query-cpus-fast")
	if err == nil {
		t.VCPUs, err = parseCPUs(out)
	}
	if err == nil {
		out, err = c.monitor(ctx, d.ref, "query-iothreads")
	}
	if err == nil {
		t.IOThreads, err = parseIOThreads(out)
	}
	if err == nil && c.Local() && len(t.VCPUs) > 0 {
		t.PID, err = processOf(t.VCPUs[0])
	}
	if err != nil {
		return Threads{}, fmt.Errorf("threads of domain %s: %w", name, err)
	}
	return t, nil
}

func (c *Conn) monitor(ctx context.Context, domain api.Domain, command string) (json.RawMessage, error) {
	out, err := ask(ctx, c, queryLimit, func(l *api.Libvirt) (string, error) {
		return l.QEMUDomainMonitorCommand(domain, `{"execute":"`+command+`"}`, 0)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	answer, err := returned(out)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	return answer, nil
}

func returned(text string) (json.RawMessage, error) {
	var answer struct {
		Return json.RawMessage `json:"return"`
		Error  *struct {
			Desc string `json:"desc"`
		} `json:"error"`
	}
	err := json.Unmarshal([]byte(text), &answer)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %.80q: %w", text, err)
	case answer.Error != nil:
		return nil, errors.New(answer.Error.Desc)
	case answer.Return == nil:
		return nil, errors.New("an answer without return")
	}
	return answer.Return, nil
}

func parseCPUs(answer []byte) ([]int, error) {
	var cpus []struct {
		Index  int `json:"cpu-index"`
		Thread int `json:"thread-id"`
	}
	if err := json.Unmarshal(answer, &cpus); err != nil {
		return nil, fmt.Errorf("query-cpus-fast: %w", err)
	}
	threads := make([]int, len(cpus))
	for _, cpu := range cpus {
		if cpu.Index < 0 || cpu.Index >= len(cpus) || threads[cpu.Index] != 0 || cpu.Thread <= 0 {
			return nil, fmt.Errorf("query-cpus-fast: virtual CPU %d of %d is thread %d: want each once", cpu.Index,
				len(cpus), cpu.Thread)
		}
		threads[cpu.Index] = cpu.Thread
	}
	return threads, nil
}

// parseIOThreads relies on libvirt's names iothread1, iothread2 ...
func parseIOThreads(answer []byte) ([]int, error) {
	var list []struct {
		ID     string `json:"id"`
		Thread int    `json:"thread-id"`
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return nil, fmt.Errorf("query-iothreads: %w", err)
	}
	byNumber := map[int]int{}
	for _, t := range list {
		n, err := strconv.Atoi(strings.TrimPrefix(t.ID, "iothread"))
		if _, twice := byNumber[n]; err != nil || twice || t.Thread <= 0 {
			return nil, fmt.Errorf("query-iothreads: thread %d is called %q: want iothread and a number, each once",
				t.Thread, t.ID)
		}
		byNumber[n] = t.Thread
	}
	return lists.Map(lists.Keys(byNumber), func(n int) int { return byNumber[n] }), nil
}

func processOf(thread int) (int, error) {
	p, err := procfs.NewProc(thread)
	if err != nil {
		return 0, err
	}
	s, err := p.NewStatus()
	return s.TGID, err
}
