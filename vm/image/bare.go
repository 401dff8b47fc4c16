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

// Bare returns the kind with the programs of a full node's image, to run them outside nodes: packages unpacked here but
// not installed.
func Bare(name string) (*Kind, error) {
	release, rest, _ := strings.Cut(name, "+")
	codename, ok := fullReleases[release]
	if !ok || !slices.Contains(strings.Split(rest, "+"), setApps) {
		return nil, fmt.Errorf("image %q has no applications: say image: debian-12+%s+mpi in the lab file", name,
			setApps)
	}
	return bare(release, codename), nil
}

// Bares returns the Bare kinds of all releases.
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

const bareRoot = "root"

const bareList = "packages"

func buildBare(ctx context.Context, o Options, work, out string, img *Image) error {
	o.progress("download the package lists of Debian %s", img.Recipe.Release)
	a, err := newApt(ctx, filepath.Join(work, "apt"), img.Recipe, "deb", "main")
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

// enter runs a command in another root, with /proc, /dev, /sys and an empty /tmp. The mounts go when the command ends.
const enter = `r=$1; shift
mount --rbind /proc "$r/proc" && mount --rbind /dev "$r/dev" && mount --rbind /sys "$r/sys" &&
	mount -t tmpfs none "$r/tmp" &&
	exec chroot "$r" "$@"`

// A BareRun is the result of RunBare.
type BareRun struct {
	Stdout, Stderr []byte
	ExitCode       int
	CPU            time.Duration // with children, on all CPUs
}

// RunBare runs a command of a Bare image. It needs root or user namespaces; an exit status other than 0 is not an
// error.
func (i *Image) RunBare(ctx context.Context, argv []string, stdin []byte) (BareRun, error) {
	root := filepath.Join(i.Dir, bareRoot)
	args := []string{"--mount"}
	if os.Geteuid() != 0 {
		args = append(args, "--map-root-user")
	}
	args = append(append(args, "sh", "-c", enter, "sh", root), argv...)
	trace.Runs("", append([]string{"unshare"}, args...))
	runtime.LockOSThread() // Pdeathsig is bound to the thread
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "unshare", args...)
	// Debian links BLAS and LAPACK in scripts, which are not run.
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
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // mpirun then ends its ranks
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
