package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rack"
)

// lsOutput is what ls prints as JSON, see docs/json.md.
type lsOutput struct {
	Labs []lsLab `json:"labs"` // by name
}

type lsLab struct {
	Name     string    `json:"name"`
	Ready    bool      `json:"ready"`  // up has finished
	Switch   string    `json:"switch"` // "running", "dead", or "none" on a host's own NICs
	Driver   string    `json:"driver"`
	Accel    string    `json:"accelerator"`                  // "kvm" or "tcg"
	Reason   string    `json:"accelerator_reason,omitempty"` // why it is not kvm
	Emulated bool      `json:"emulated"`
	Kernel   string    `json:"kernel"`
	Image    string    `json:"image"`
	Dir      string    `json:"dir"`
	Created  time.Time `json:"created"`
	Nodes    []lsNode  `json:"nodes"` // in the order of the lab file
}

type lsNode struct {
	Name       string     `json:"name"`
	State      string     `json:"state"`           // "running", "paused", "dead", "starting" or "unknown"
	Error      string     `json:"error,omitempty"` // why it is unknown
	PID        int        `json:"pid,omitempty"`
	CPUs       int        `json:"cpus"`
	Memory     int64      `json:"memory_bytes"`
	Cloned     bool       `json:"cloned"`
	ColdReason string     `json:"cold_reason,omitempty"` // why it was booted
	Started    *time.Time `json:"started,omitempty"`
	NICs       []lsNIC    `json:"nics"`
}

type lsNIC struct {
	Name    string `json:"name"`
	MAC     string `json:"mac"`
	Address string `json:"address"` // with the length of its subnet
	RDMA    string `json:"rdma_device,omitempty"`
	GID     *int   `json:"roce_v2_gid_index,omitempty"` // of the address; absent if the device has none
}

func newLsCmd(a *app) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "ls [LAB]",
		Aliases: []string{"list"},
		Short:   "List the running labs and their nodes, as they are now",
		Long: `Lists the nodes of all labs of this user, or of one. The state is asked from each node's machine:

  running   its CPUs run
  paused    they are stopped
  dead      its process is gone: rackless up LAB.yaml starts it again
  starting  up works on it, or was killed: rackless up LAB.yaml goes on
  unknown   its machine did not say; the reason is on standard error

GID is the index of the RoCE v2 GID of the address, which tools such as ib_write_bw take with -x.`,
		Example: `  rackless ls
  rackless ls pair -o json`,
		Args:              maxArgs(1, "at most one lab"),
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			racks, err := a.openLabs(args)
			out := lsOutput{Labs: []lsLab{}}
			for _, r := range racks {
				out.Labs = append(out.Labs, describeLab(cmd.Context(), r))
			}
			// Labs that cannot be read are an error, but not for those that can.
			return errors.Join(a.list(format, out, func() error { return a.printLabs(out, err) }), err)
		},
	}
	outputFlag(cmd, &format)
	return cmd
}

// openLabs opens the lab that an optional argument names, else all.
func (a *app) openLabs(args []string) ([]*rack.Rack, error) {
	d, err := a.dirs()
	if err != nil {
		return nil, err
	}
	if len(args) == 0 {
		return rack.OpenAll(d)
	}
	name, err := labName(args[0])
	if err != nil {
		return nil, err
	}
	r, err := rack.Open(d, name)
	if err != nil {
		return nil, err
	}
	return []*rack.Rack{r}, nil
}

func describeLab(ctx context.Context, r *rack.Rack) lsLab {
	s := r.State
	l := lsLab{
		Name: r.Lab.Name, Ready: s.Ready, Switch: string(r.SwitchState()), Driver: s.Driver, Accel: s.Accel, Reason: s.Emulate,
		Emulated: s.Accel != "kvm",
		Kernel:   s.Kernel, Image: s.Image, Dir: r.Dir, Created: s.Created,
	}
	for _, st := range r.Status(ctx) {
		l.Nodes = append(l.Nodes, describeNode(st))
	}
	return l
}

func describeNode(st rack.NodeStatus) lsNode {
	n := lsNode{Name: st.Lab.Name, State: string(st.State), CPUs: st.Lab.CPUs, Memory: int64(st.Lab.Memory)}
	if st.Err != nil {
		n.State, n.Error = "unknown", st.Err.Error()
	}
	for _, nic := range st.Lab.NICs {
		n.NICs = append(n.NICs, lsNIC{Name: nic.Name, MAC: nic.MAC, Address: nic.Addr.String()})
	}
	if st.Node == nil {
		return n
	}
	n.PID, n.Cloned, n.ColdReason, n.Started = st.Node.Process.PID, st.Node.Cloned, st.Node.ColdReason, &st.Node.Started
	if st.Node.Facts == nil {
		return n
	}
	for i, nic := range st.Lab.NICs {
		for name, dev := range st.Node.Facts.RDMA {
			if dev.Parent != nic.Name {
				continue
			}
			n.NICs[i].RDMA = name
			if gid, ok := dev.RoCEv2Index(nic.Addr.Addr()); ok {
				n.NICs[i].GID = &gid
			}
		}
	}
	return n
}

// printLabs prints the table, and what is wrong on standard error.
func (a *app) printLabs(out lsOutput, err error) error {
	if len(out.Labs) == 0 {
		if err == nil {
			fmt.Fprintln(a.out, "no lab is running; bring one up with: rackless up LAB.yaml")
		}
		return nil
	}
	if _, err := fmt.Fprint(a.out, labGrid(out, time.Now())); err != nil {
		return err
	}
	for _, l := range out.Labs {
		if l.Switch != "running" {
			fmt.Fprintf(a.err, "lab %s: its switch is not running: rackless up with its lab file starts it again\n",
				l.Name)
		} else if !l.Ready {
			fmt.Fprintf(a.err, "lab %s: not ready: up works on it, or was killed; rackless up with its lab file "+
				"goes on\n", l.Name)
		}
		for _, n := range l.Nodes {
			switch {
			case n.Error != "":
				fmt.Fprintf(a.err, "%s/%s: %s\n", l.Name, n.Name, n.Error)
			case n.State == "dead":
				fmt.Fprintf(a.err, "%s/%s: its process %d is gone: rackless up with the lab's file starts it again\n",
					l.Name, n.Name, n.PID)
			}
		}
	}
	return nil
}

// labGrid has one row a node. Nodes with several NICs list them in one field, by commas.
func labGrid(out lsOutput, now time.Time) *grid {
	g := newGrid("lab", "node", "state", "address", "rdma", "gid", "driver", "accel", "since", "made")
	for _, l := range out.Labs {
		for _, n := range l.Nodes {
			var addrs, devs, gids []string
			for _, nic := range n.NICs {
				addrs = append(addrs, nic.Address)
				if nic.RDMA != "" {
					devs = append(devs, nic.RDMA)
				}
				if nic.GID != nil {
					gids = append(gids, strconv.Itoa(*nic.GID))
				}
			}
			since, made := "", ""
			if n.Started != nil {
				since, made = words.Ago(now.Sub(*n.Started)), "booted"
				if n.Cloned {
					made = "cloned"
				}
			}
			g.add(l.Name, n.Name, n.State, strings.Join(addrs, ","), strings.Join(devs, ","), strings.Join(gids, ","),
				l.Driver, l.Accel, since, made)
		}
	}
	return g
}
