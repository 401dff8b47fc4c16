// Command release makes the files that users download: archives and packages of Debian, Fedora and Alpine, their
// checksums, and a list of the modules in them. The same source gives the same bytes on every machine. With -install it
// puts the files below a directory instead.
//
// It is a separate module, so that rackless does not depend on packaging libraries.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run() error {
	r := release{goCommand: cmp.Or(os.Getenv("GO"), "go")}
	arches := flag.String("arch", "amd64,arm64", "architectures, as Go names them")
	install := flag.String("install", "", "install for this machine below `DIR` (/usr/local), and make no packages")
	uninstall := flag.String("uninstall", "", "remove what -install puts below `DIR`")
	images := flag.Bool("images", false, "write the images of labs, and archives with them, and make no packages")
	key := flag.String("key", "", "sign that file with this private key (PEM, Ed25519)")
	destDir := flag.String("destdir", "", "a directory that stands for / while files are installed")
	flag.StringVar(&r.version, "version", "", "version, such as v0.2.0; default: what git describe says")
	flag.StringVar(&r.source, "source", "../..", "the checkout")
	flag.StringVar(&r.out, "out", "../../out/release", "where the release is written")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flag.Arg(0))
	}
	if err := r.describe(); err != nil {
		return err
	}
	switch {
	case *uninstall != "":
		return r.uninstall(*destDir, *uninstall)
	case *install != "":
		return r.install(*destDir, *install)
	case *images:
		for _, arch := range strings.Split(*arches, ",") {
			if _, err := r.offline(arch, *key); err != nil {
				return err
			}
		}
		return nil
	}
	return r.make(strings.Split(*arches, ","))
}

type release struct {
	goCommand, source, out string
	version                string    // with its leading v
	time                   time.Time // modification time of all files

	manual, completions map[string][]byte // set once they are written
}

// describe takes the version and the time from the commit. Without git, the time comes from SOURCE_DATE_EPOCH
// (reproducible-builds.org).
func (r *release) describe() error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	if r.version == "" {
		v, err := r.output("git", "describe", "--always", "--dirty", "--tags")
		if err != nil {
			return fmt.Errorf("which version is this? say -version: %w", err)
		}
		r.version = v
	}
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		var err error
		if seconds, err = r.output("git", "log", "-1", "--format=%ct"); err != nil {
			return fmt.Errorf("when was this made? set SOURCE_DATE_EPOCH: %w", err)
		}
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	r.time = time.Unix(n, 0).UTC()
	return nil
}

func (r *release) output(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = r.source
	b, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(failed.Stderr)))
	}
	return strings.TrimSpace(string(b)), err
}

func (r *release) build(arch string) (string, error) {
	out, err := filepath.Abs(filepath.Join(r.out, "build", "rackless-"+arch))
	if err != nil {
		return "", err
	}
	fmt.Println("build", arch)
	cmd := exec.Command(r.goCommand, "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -buildid= -X main.version="+r.version, "-o", out, "./cmd/rackless")
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.source, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOAMD64=v1", "GOFLAGS=")
	return out, cmd.Run()
}

func (r *release) pages(here string) (pages, completions map[string][]byte, err error) {
	dir, err := filepath.Abs(filepath.Join(r.out, "build", "man"))
	if err != nil {
		return nil, nil, err
	}
	if err := os.RemoveAll(dir); err != nil {
		return nil, nil, err
	}
	fmt.Println("manual pages")
	if _, err := r.output(r.goCommand, "test", "./cmd/rackless", "-run", "^TestManualPages$", "-man", dir,
		"-man-version", r.version, "-man-time", strconv.FormatInt(r.time.Unix(), 10)); err != nil {
		return nil, nil, err
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(found) == 0 {
		return nil, nil, fmt.Errorf("no manual pages in %s: %v", dir, err)
	}
	pages, completions = make(map[string][]byte), make(map[string][]byte)
	for _, f := range found {
		if pages[filepath.Base(f)], err = os.ReadFile(f); err != nil {
			return nil, nil, err
		}
	}
	for _, shell := range []string{"bash", "fish", "zsh"} {
		text, err := r.output(here, "completion", shell)
		if err != nil {
			return nil, nil, err
		}
		completions[shell] = []byte(text + "\n")
	}
	return pages, completions, nil
}

func (r *release) make(arches []string) error {
	var made []string
	for _, arch := range arches {
		binary, files, err := r.built(arch)
		if err != nil {
			return err
		}
		fmt.Println("package", arch)
		names, err := r.packAll(arch, binary, files)
		if err != nil {
			return err
		}
		made = append(made, names...)
	}
	return r.checksums("SHA256SUMS", made)
}

// images is for hosts that cannot build images. They come from today's Debian mirrors, so the bytes change.
func (r *release) images(arch, key string) (file, digest string, err error) {
	binary, err := r.build(runtime.GOARCH)
	if err != nil {
		return "", "", err
	}
	if file, err = filepath.Abs(filepath.Join(r.out, r.base(arch)+"_images.tar.zst")); err != nil {
		return "", "", err
	}
	args := []string{"image", "export", file, "--host-arch", arch}
	if key != "" {
		args = append(args, "--key", key)
	}
	if digest, err = r.output(binary, args...); err != nil {
		return "", "", err
	}
	fmt.Println(file, digest)
	return file, digest, os.WriteFile(file+".digest", []byte(digest+"\n"), 0o644)
}

func (r *release) offline(arch, key string) (string, error) {
	images, digest, err := r.images(arch, key)
	if err != nil {
		return "", err
	}
	_, files, err := r.built(arch)
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(images)
	if err != nil {
		return "", err
	}
	files = append(files, file{"images.digest", 0o644, []byte(digest + "\n")}, file{"images.tar.zst", 0o644, content})
	name := r.base(arch) + "_offline.tar.gz"
	fmt.Println("pack", name)
	if err := r.write(name, func(w io.Writer) error { return r.archive(w, r.base(arch), files) }); err != nil {
		return "", err
	}
	return filepath.Join(r.out, name), r.checksums(name+".sha256", []string{name})
}

func (r *release) built(arch string) (binary string, files []file, err error) {
	here, err := r.build(runtime.GOARCH)
	if err != nil {
		return "", nil, err
	}
	if r.manual == nil {
		if r.manual, r.completions, err = r.pages(here); err != nil {
			return "", nil, err
		}
	}
	if binary = here; arch != runtime.GOARCH {
		if binary, err = r.build(arch); err != nil {
			return "", nil, err
		}
	}
	files, err = r.tree(binary, r.manual, r.completions)
	return binary, files, err
}

func (r *release) install(destDir, prefix string) error {
	_, files, err := r.built(runtime.GOARCH)
	if err != nil {
		return err
	}
	if err := put(destDir, prefix, files); err != nil {
		return err
	}
	fmt.Printf("installed %d files below %s\n", len(files), filepath.Join(destDir, prefix))
	return nil
}

func put(destDir, prefix string, files []file) error {
	for _, f := range files {
		to := filepath.Join(destDir, prefix, f.path)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		// The old binary may be running, so it is replaced by renaming.
		if err := os.WriteFile(to+".new", f.content, f.mode); err != nil {
			return err
		}
		if err := os.Rename(to+".new", to); err != nil {
			return err
		}
	}
	return nil
}

// uninstall finds files by name, since the installed version may have had other pages.
func (r *release) uninstall(destDir, prefix string) error {
	n := 0
	for _, pattern := range installed {
		found, err := filepath.Glob(filepath.Join(destDir, prefix, pattern))
		if err != nil {
			return err
		}
		for _, f := range found {
			if err := os.RemoveAll(f); err != nil {
				return err
			}
			n++
		}
	}
	fmt.Printf("removed %d files and directories below %s\n", n, filepath.Join(destDir, prefix))
	return nil
}
