//go:build !linux

package main

import (
	"context"
	"errors"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/inspect"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/render"
)

// needsLinux is a verb that works on labs and hosts, which are Linux.
func needsLinux(name string) *cobra.Command {
	return &cobra.Command{Use: name, Short: "Needs Linux", DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Usagef(cmd, "needs Linux, and this is %s: here files are inspected, planned and reported",
				runtime.GOOS)
		}}
}

// upRefuses knows nothing of the machine that runs the lab.
func upRefuses(*lab.Lab) error { return nil }

// planArtifacts are made of what changes a host.
func planArtifacts(render.Input) ([]render.Artifact, error) {
	return nil, errors.New("the files of a plan hold scripts for its host, and are written on Linux")
}

// vsphereScheme begins nothing that can be read here.
const vsphereScheme = "vsphere://"

// vsphereJobs needs a vCenter, whose client is that of labs.
func vsphereJobs(context.Context, string) (jobs inspect.Jobs, err error) {
	return jobs, errors.New("hosts of vSphere are read on Linux")
}

func newAdoptCmd(*app) *cobra.Command    { return needsLinux("adopt") }
func newBenchCmd(*app) *cobra.Command    { return needsLinux("bench") }
func newCaptureCmd(*app) *cobra.Command  { return needsLinux("capture") }
func newConsoleCmd(*app) *cobra.Command  { return needsLinux("console") }
func newCpCmd(*app) *cobra.Command       { return needsLinux("cp") }
func newDaemonCmd(*app) *cobra.Command   { return needsLinux("lab-daemon") }
func newDoctorCmd(*app) *cobra.Command   { return needsLinux("doctor") }
func newDownCmd(*app) *cobra.Command     { return needsLinux("down") }
func newEmulateCmd(*app) *cobra.Command  { return needsLinux("emulate") }
func newExecCmd(*app) *cobra.Command     { return needsLinux("exec") }
func newFabricCmd(*app) *cobra.Command   { return needsLinux("fabric") }
func newImageCmd(*app) *cobra.Command    { return needsLinux("image") }
func newLabBreakCmd(*app) *cobra.Command { return needsLinux("break") }
func newLabDiffCmd(*app) *cobra.Command  { return needsLinux("diff") }
func newLabJudgeCmd(*app) *cobra.Command { return needsLinux("judge") }
func newLabMendCmd(*app) *cobra.Command  { return needsLinux("mend") }
func newLogsCmd(*app) *cobra.Command     { return needsLinux("logs") }
func newLsCmd(*app) *cobra.Command       { return needsLinux("ls") }
func newMPIRunCmd(*app) *cobra.Command   { return needsLinux("mpirun") }
func newNICCmd(*app) *cobra.Command      { return needsLinux("nic") }
func newPrepareCmd(*app) *cobra.Command  { return needsLinux("prepare") }
func newRollbackCmd(*app) *cobra.Command { return needsLinux("rollback") }
func newSSHCmd(*app) *cobra.Command      { return needsLinux("ssh") }
func newSnapshotCmd(*app) *cobra.Command { return needsLinux("snapshot") }
func newStudyRunCmd(*app) *cobra.Command { return needsLinux("run") }
func newUICmd(*app) *cobra.Command       { return needsLinux("ui") }
func newUpCmd(*app) *cobra.Command       { return needsLinux("up") }
func newVerifyCmd(*app) *cobra.Command   { return needsLinux("verify") }
