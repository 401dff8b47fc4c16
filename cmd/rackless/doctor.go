package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/doctor"
	"github.com/rackless/rackless/finding"
	"github.com/rackless/rackless/internal/terminal"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rack"
)

func newDoctorCmd(a *app) *cobra.Command {
	var format string
	var probe bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what this machine can do as a host of labs, and how to fix what it lacks",
		Long: `Checks everything that up needs, and what makes it fast, and prints one line for each with what was
found. It installs and changes nothing. To find out whether KVM can be used, it boots the node image
under KVM, up to 8 seconds; the answer is kept until the machine reboots. That needs the image:
--probe builds it if it is missing.

  ok    as it should be
  warn  labs come up, but slower or smaller than they could
  lack  labs do not come up

Ends with status 3 if something is lacking.`,
		Example: `  rackless doctor
  rackless doctor -o json`,
		Args: exactArgs(0, "no argument"),
		RunE: a.inDirs(func(ctx context.Context, d rack.Dirs, _ []string) error {
			// What the checks find is printed below: only the step that runs is shown meanwhile.
			ui := terminal.NewDisplay(a.err, a.env)
			out := doctor.Look(ctx, doctor.Options{Dirs: d, Probe: probe, Progress: &rack.Progress{Report: ui.Quiet()}})
			ui.Close()
			if err := context.Cause(ctx); err != nil {
				return err
			}
			if err := a.print(format, out, a.doctorText(out)); err != nil || out.Ready {
				return err
			}
			return exitWith(exitFaults)
		}),
	}
	outputFlag(cmd, &format)
	cmd.Flags().BoolVar(&probe, "probe", false, "build the image if it is missing, to find out whether KVM can be used")
	return cmd
}

// doctorText has a line for each check, with its fix below.
func (a *app) doctorText(out doctor.Report) string {
	paint := a.painter()
	// Green, yellow and red of ECMA-48. The words say the same, for those who see or have no colours.
	color := map[finding.Status]string{finding.OK: "32", finding.Warn: "33", finding.Lack: "31"}
	width := 0
	for _, c := range out.Checks {
		width = max(width, len(c.Title))
	}
	lacks, warns := finding.Count(out.Checks, finding.Lack), finding.Count(out.Checks, finding.Warn)
	var b strings.Builder
	for _, c := range out.Checks {
		status := paint(color[c.Status], fmt.Sprintf("%-4s", c.Status))
		fmt.Fprintf(&b, "%s  %-*s  %s\n", status, width, c.Title, c.Evidence)
		if c.Fix != "" {
			fmt.Fprintf(&b, "%6sfix: %s\n", "", c.Fix)
		}
	}
	switch {
	case lacks > 0:
		fmt.Fprintf(&b, "\nlacking: %s, with %s: rackless up will not work before that is there\n",
			words.Count(lacks, "thing"), words.Count(warns, "warning"))
	case warns > 0:
		fmt.Fprintf(&b, "\nready, with %s\n", words.Count(warns, "warning"))
	default:
		b.WriteString("\nready\n")
	}
	return b.String()
}
