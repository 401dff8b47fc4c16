//go:build !linux

package main

import (
	"context"
	"errors"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan/render"
)

// needsLinux makes a verb for labs and hosts, which exist only on Linux.
func needsLinux(name string) func(*app) *cobra.Command {
	return func(*app) *cobra.Command {
		return &cobra.Command{Use: name, Short: "Needs Linux", DisableFlagParsing: true,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return cli.Usagef(cmd, "needs Linux, and this is %s: here files are inspected, planned and reported",
					runtime.GOOS)
			}}
	}
}

// upRefuses cannot judge the machine that will run the lab.
func upRefuses(*lab.Lab) error { return nil }

// gpuDirectInLab finds no lab here.
func (a *app) gpuDirectInLab(context.Context, string, []string) (tried bool, err error) {
	return false, nil
}

// planArtifacts fails, because the commands that prepare a host come from code for Linux.
func planArtifacts(render.Input) ([]render.Artifact, error) {
	return nil, errors.New("plan --out writes the commands that prepare the host, and works on Linux only")
}

var (
	newAdoptCmd, newBenchCmd, newCaptureCmd   = needsLinux("adopt"), needsLinux("bench"), needsLinux("capture")
	newBundleCmd                              = needsLinux("bundle")
	newConsoleCmd, newCpCmd, newDaemonCmd     = needsLinux("console"), needsLinux("cp"), needsLinux("lab-daemon")
	newDoctorCmd, newDownCmd, newEmulateCmd   = needsLinux("doctor"), needsLinux("down"), needsLinux("emulate")
	newExecCmd, newGPUCmd, newImageCmd        = needsLinux("exec"), needsLinux("gpu"), needsLinux("image")
	newLabDiffCmd                             = needsLinux("diff")
	newLinksCmd                               = needsLinux("links")
	newLinkSetCmd, newLinkShowCmd, newLogsCmd = needsLinux("set"), needsLinux("show"), needsLinux("logs")
	newLsCmd, newMPIRunCmd, newNICCmd         = needsLinux("ls"), needsLinux("mpirun"), needsLinux("nic")
	newPerftestCmd                            = needsLinux("perftest")
	newPrepareCmd, newPuzzleCheckCmd          = needsLinux("prepare"), needsLinux("check")
	newPuzzleRevealCmd, newPuzzleStartCmd     = needsLinux("reveal"), needsLinux("start")
	newRollbackCmd, newRunCmd, newSSHCmd      = needsLinux("rollback"), needsLinux("run"), needsLinux("ssh")
	newSnapshotCmd                            = needsLinux("snapshot")
	newStudyMergeCmd                          = needsLinux("merge")
	newStudyRunCmd, newUICmd, newUpCmd        = needsLinux("run"), needsLinux("ui"), needsLinux("up")
	newSimulateCmd, newTopCmd, newVerifyCmd   = needsLinux("simulate"), needsLinux("top"), needsLinux("verify")
)
