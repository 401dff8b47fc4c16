// Package vm is one QEMU process, whatever machine it makes: how it is started, what it is doing,
// and how it is found again from another process.
//
// It knows nothing of labs and hosts, whose packages say what the machine is like.
package vm

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/rackless/rackless/qapi"
)

// State is what a machine is doing.
type State string

// The states that can be told apart.
const (
	Running State = "running"
	Paused  State = "paused"
	Dead    State = "dead" // no such process any more
)

// QueryState asks the QEMU of the machine in dir what it is doing. One that lives but does not answer
// within a second is taken to be running: it is busy, not dead.
func QueryState(ctx context.Context, p Process, dir string) (State, error) {
	if !p.Alive() {
		return Dead, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	q, err := qapi.DialQMP(ctx, filepath.Join(dir, SocketQMP))
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Running, nil
	case err != nil && !p.Alive():
		return Dead, nil
	case err != nil:
		return "", err
	}
	defer q.Close()
	var st struct {
		Status string `json:"status"`
	}
	if err := q.Call(ctx, "query-status", nil, &st); err != nil {
		return "", err
	}
	if st.Status == "running" || st.Status == "inmigrate" {
		return Running, nil
	}
	return Paused, nil
}

// Strays returns every QEMU that has a log below dir, known to a state file or not: a rackless that
// was killed may have left one that no file knows.
func Strays(dir string) ([]Process, error) {
	// Every machine logs its serial port into its directory. The option's name before the path keeps
	// out a directory that ends like this one.
	return ProcessesUsing("qemu-system", ",logfile="+Escape(dir)+"/")
}
