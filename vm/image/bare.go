package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rackless/rackless/internal/trace"
)

// Bare returns the programs of the image of full nodes with a name, to run them outside of nodes: the same packages,
// unpacked on this machine and not installed.
func Bare(name string) (*Kind, error) {
	release, rest, _ := strings.Cut(name, "+")
	codename, ok := fullReleases[release]
	if !ok || !slices.Contains(strings.Split(rest, "+"), setApps) {
		return nil, fmt.Errorf("image %q has no applications: say image: debian-12+%s+mpi in the lab file", name,
			setApps)
	}
	return bare(release, codename), nil
}

// Bares returns the kinds of all releases.
func Bares() (all []*Kind) {
	for _, release := range slices.Sorted(maps.Keys(fullReleases)) {
		all = append(all, bare(release, fullReleases[release]))
	}
	return all
}

func bare(release, codename string) *Kind {
	return &Kind{name: "bare " + release, label: "the applications of " + release, room: "1 GB",
		recipe: func(context.Context, Options) (Recipe, builder, error) {
			return Recipe{Format: 1, Release: codename, Suites: suites(codename),
				Packages: append(slices.Clone(fullSets[setApps]), "coreutils", "dash", "openmpi-bin")}, buildBare, nil
		}}
}

// bareRoot is the directory of an image of Bare in which its packages are unpacked.
const bareRoot = "root"

// bareList is a file with the packages of such an image.
const bareList = "packages"

// buildBare unpacks packages, and does what their scripts would that their programs need.
func buildBare(ctx context.Context, o Options, work, out string, img *Image) error {
	o.progress("download the package lists of Debian %s", img.Recipe.Release)
	a, err := newApt(ctx, filepath.Join(work, "apt"), img.Recipe)
	if err != nil {
		return err
	}
	debs, size, err := a.resolveSize(ctx, img.Recipe.Packages)
	if err != nil {
		return err
	}
	o.progress("download %d packages, %d MB; nothing is installed", len(debs), size/1e6)
	root := filepath.Join(out, bareRoot)
	if err := a.fetch(ctx, o, work, root, debs); err != nil {
		return err
	}
	for _, dir := range []string{"proc", "dev", "sys", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	img.Packages, img.Others = debs, []string{bareList}
	return os.WriteFile(filepath.Join(out, bareList), []byte(strings.Join(debs, "\n")+"\n"), 0o644)
}

// enter makes its first argument the root of a command, with /proc, /dev, /sys and an empty /tmp. It runs with mounts
// of its own, which go when it ends.
const enter = `r=$1; shift
mount --rbind /proc "$r/proc" && mount --rbind /dev "$r/dev" && mount --rbind /sys "$r/sys" &&
	mount -t tmpfs none "$r/tmp" &&
	exec chroot "$r" "$@"`

// A BareRun is what became of a command outside of nodes.
type BareRun struct {
	Stdout, Stderr []byte
	ExitCode       int
	CPU            time.Duration // that it and what it started have used, all CPUs together
}

// RunBare runs a command with the programs of an image of Bare alone. It takes root, or user namespaces. A status other
// than 0 is no error.
func (i *Image) RunBare(ctx context.Context, argv []string, stdin []byte) (BareRun, error) {
	root := filepath.Join(i.Dir, bareRoot)
	args := []string{"--mount"}
	if os.Geteuid() != 0 {
		args = append(args, "--map-root-user")
	}
	args = append(append(args, "sh", "-c", enter, "sh", root), argv...)
	trace.Runs("", append([]string{"unshare"}, args...))
	runtime.LockOSThread() // Pdeathsig is bound to the thread that starts the child
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "unshare", args...)
	// Debian's packages of BLAS and LAPACK leave links to their scripts, which are not run.
	var libraries []string
	for _, pattern := range []string{"usr/lib/*/blas", "usr/lib/*/lapack", "usr/lib/*/openblas*"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return BareRun{}, err
		}
		for _, dir := range found {
			libraries = append(libraries, strings.TrimPrefix(dir, root))
		}
	}
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp", "LC_ALL=C",
		"LD_LIBRARY_PATH=" + strings.Join(libraries, ":")}
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // mpirun ends its ranks then
	cmd.WaitDelay = stopLimit
	err := cmd.Run()
	ran := BareRun{Stdout: out.Bytes(), Stderr: errs.Bytes()}
	if s := cmd.ProcessState; s != nil {
		ran.ExitCode, ran.CPU = s.ExitCode(), s.UserTime()+s.SystemTime()
	}
	if _, ended := errors.AsType[*exec.ExitError](err); ended && ctx.Err() == nil {
		return ran, nil
	}
	if err != nil {
		err = fmt.Errorf("run %s outside of nodes: %w", argv[0], err)
	}
	return ran, err
}
