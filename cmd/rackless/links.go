//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/host"
	"github.com/rackless/rackless/host/links"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/terminal"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan/planner"
	"github.com/rackless/rackless/report/show"
)

const (
	probeWait    = time.Second     // for the last frames
	probeCarrier = 8 * time.Second // for links that were set up; training takes some seconds
)

// linksOutput is the JSON output of host links. See docs/json.md.
type linksOutput struct {
	Host   string       `json:"host"`
	Probed bool         `json:"probed"`
	Ports  []links.Port `json:"ports"`
}

// newLinksCmd makes rackless host links.
func newLinksCmd(a *app) *cobra.Command {
	var from hostFlag
	var format string
	var probe, up, yes bool
	cmd := &cobra.Command{
		Use:   "links",
		Short: "Say which network ports have a cable, and which of them a cable joins",
		Args:  cli.ExactArgs(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := from.check(cmd, "a host"); err != nil {
				return err
			}
			switch {
			case (up || yes) && !probe:
				return cli.Usagef(cmd, "--up and --yes are for --probe")
			case probe && from.host != planner.Local:
				return cli.Usagef(cmd, "--probe sends frames from this machine: leave out --host, or run it there")
			}
			return a.hostLinks(cmd.Context(), from.host, format, probe, up, yes)
		},
	}
	from.add(cmd, "the ports of")
	outputFlag(cmd, &format)
	cmd.Flags().BoolVar(&probe, "probe", false, "send frames from each port, and see where they arrive")
	cmd.Flags().BoolVar(&up, "up", false, "with --probe: set ports up that are down, and down again afterwards")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (a *app) hostLinks(ctx context.Context, from, format string, probe, up, yes bool) error {
	h, name, err := a.hosts().Read(ctx, from)
	if err != nil {
		return err
	}
	out := linksOutput{Host: name, Probed: probe, Ports: append([]links.Port{}, links.Of(h)...)}
	if from == planner.Local {
		// Without the daemon, nothing is said about the other end.
		if text, err := a.system().Query(ctx, "lldpctl", "-f", "json0"); err == nil {
			heard, err := links.ParseLLDPCtl(text)
			if err != nil {
				fmt.Fprintf(a.err, "rackless: %v\n", err)
			}
			links.Neighbours(out.Ports, heard)
		}
	}
	if probe {
		if err := a.probe(ctx, out.Ports, format, up, yes); err != nil {
			return err
		}
	}
	return a.print(format, out, linksText(&out))
}

// probe fills in which ports are joined. With up it sets ports up for that, after a question.
func (a *app) probe(ctx context.Context, ports []links.Port, format string, up, yes bool) error {
	s := a.system()
	store := a.store()
	down := lists.Filter(ports, func(p links.Port) bool {
		state, err := (&links.Up{Netdev: p.Netdev}).Read(ctx, s)
		return err == nil && !(&links.Up{}).Done(state)
	})
	up = up && len(down) > 0
	if up && !yes {
		names := strings.Join(links.Names(down), ", ")
		if show.ForPrograms(format) || terminal.Of(a.err) == nil {
			return cli.Usage(fmt.Errorf("--up sets ports up for the probe (%s): say --yes", names))
		}
		ok, err := terminal.Confirm(ctx, a.in, a.err, fmt.Sprintf("Set %s up for the probe, and down again?", names))
		if err != nil || !ok {
			return errors.Join(err, &cli.Error{Code: exitFailed, Err: errors.New("nothing was changed")})
		}
	}
	p := &links.Probe{Wait: probeWait, Up: up, Carrier: probeCarrier, Journal: store.Journal(), Kinds: host.Kinds()}
	progress, end := a.progress()
	defer end()
	progress.Begin("send frames from each port")
	err := p.Run(ctx, s, ports)
	progress.End(err)
	if up {
		store.Tidy()
	}
	return a.needsRoot("host links --probe", err)
}

// linksText returns the table of ports, and the pairs that are joined.
func linksText(out *linksOutput) string {
	if len(out.Ports) == 0 {
		return "no network port of a device is known\n"
	}
	g := show.NewGrid("nic", "port", "rdma", "carrier", "speed>", "other end")
	for _, p := range out.Ports {
		g.Add(p.NIC, p.Netdev, p.RDMA, carrierWord(p.Carrier), speedWord(p.Mbps), otherEnd(p))
	}
	text := g.String()
	if !out.Probed {
		return text
	}
	text += "\n"
	all := links.Joints(out.Ports)
	for _, j := range all {
		text += fmt.Sprintf("%s and %s: %s\n", j[0].Netdev, j[1].Netdev, map[links.Way]string{
			links.Cable: "joined by a cable", links.Network: "on one network, with a switch between them"}[j[1].Way])
	}
	sent := lists.Count(out.Ports, func(p links.Port) bool { return p.Unprobed == "" })
	switch {
	case sent == 0:
		text += "no port could send frames; --up sets ports up for the probe\n"
	case len(all) == 0:
		text += fmt.Sprintf("no two ports are joined, of %s that sent frames\n", words.Count(sent, "port"))
	}
	return text
}

func carrierWord(c *bool) string {
	switch {
	case c == nil:
		return "not known"
	case *c:
		return "yes"
	}
	return "no"
}

func speedWord(mbps *int64) string {
	if mbps == nil || *mbps <= 0 {
		return ""
	}
	return words.Rate(1e6 * float64(*mbps))
}

func otherEnd(p links.Port) string {
	var all []string
	for _, j := range p.Joined {
		all = append(all, j.Netdev)
	}
	if p.Neighbour != nil {
		all = append(all, p.Neighbour.String()+" (LLDP)")
	}
	if len(all) == 0 && p.Unprobed != "" {
		return "not probed: " + p.Unprobed
	}
	return strings.Join(all, ", ")
}
