package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/vm/distro"
)

// keyring is in debian-archive-keyring, on which apt depends.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

type inputs struct {
	recipe  Recipe
	sources []source
	options []string // lines for apt.conf
}

type source struct{ uri, suite string }

func suites(codename string) []string {
	return []string{codename, codename + "-updates", codename + "-security"}
}

// line is for sources.list. kind is deb for packages or deb-src for their sources.
func (s source) line(kind, component string) string {
	return fmt.Sprintf("%s [signed-by=%s] %s %s %s\n", kind, keyring, s.uri, s.suite, component)
}

func currentInputs(ctx context.Context) (inputs, error) {
	release := ""
	if s := thisSystem(); s.Debian() {
		release = s.Codename
	}
	targets, dump, err := askApt(ctx)
	if err != nil {
		return inputs{}, err
	}
	sources, err := parseSources(targets, release)
	if err != nil {
		return inputs{}, err
	}
	names := lists.Map(sources, func(s source) string { return s.suite })
	slices.Sort(names)
	return inputs{recipe: hostRecipe(release, slices.Compact(names)), sources: sources, options: aptOptions(dump)}, nil
}

// aptSaid caches apt's answers, each of which takes half a second.
var aptSaid struct {
	sync.Mutex
	targets, dump string
}

func askApt(ctx context.Context) (targets, dump string, err error) {
	aptSaid.Lock()
	defer aptSaid.Unlock()
	if aptSaid.targets != "" {
		return aptSaid.targets, aptSaid.dump, nil
	}
	t, err := run(ctx, command{name: "apt-get", args: []string{
		"indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)", "Created-By: Packages", "Origin: Debian",
	}})
	if err != nil {
		return "", "", fmt.Errorf("find the mirrors of Debian: %w", err)
	}
	d, err := run(ctx, command{name: "apt-config", args: []string{"dump", "--no-empty", "--format", `%f "%v";%n`,
		"Acquire"}})
	if err != nil {
		return "", "", fmt.Errorf("read the configuration of apt: %w", err)
	}
	aptSaid.targets, aptSaid.dump = string(t), string(d)
	return aptSaid.targets, aptSaid.dump, nil
}

func thisSystem() distro.System { return distro.Of(os.DirFS("/")) }

// parseSources returns suites from lines "URI codename component", in order and without duplicates. Packages of other
// releases do not fit.
func parseSources(targets, release string) ([]source, error) {
	if release == "" {
		return nil, errors.New("emulated hosts are made from the packages of this machine's Debian, and this is " +
			"another system: use Debian 12 or newer, in a virtual machine or a container")
	}
	var sources []source
	main := false
	for line := range strings.Lines(targets) {
		f := strings.Fields(line)
		if len(f) != 3 || f[2] != "main" || strings.HasPrefix(f[0], "cdrom:") {
			continue
		}
		switch f[1] {
		case release:
			main = true
		case release + "-updates", release + "-security", release + "-backports":
		default:
			continue
		}
		if s := (source{f[0], f[1]}); !slices.Contains(sources, s) {
			sources = append(sources, s)
		}
	}
	if !main {
		return nil, fmt.Errorf("apt has no lists of Debian %s, component main: add it to apt's sources and run: "+
			"apt-get update", release)
	}
	return sources, nil
}

// aptOptions returns the settings for reaching and trusting mirrors: proxies, time limits, the age of lists.
func aptOptions(dump string) []string {
	var options []string
	for line := range strings.Lines(dump) {
		line = strings.TrimSpace(line)
		for _, prefix := range []string{
			"Acquire::http::", "Acquire::https::", "Acquire::Retries ", "Acquire::Check-Valid-Until ",
			"Acquire::Check-Date ", "Acquire::ForceIPv4 ", "Acquire::ForceIPv6 ",
		} {
			if strings.HasPrefix(line, prefix) {
				options = append(options, line)
			}
		}
	}
	return options
}

func preferences(r Recipe) string {
	suite, ok := r.backports()
	if !ok {
		return ""
	}
	src := lists.Map(r.Backported, func(name string) string { return "src:" + name })
	// 500 is the release's own priority, so the newer version wins. Backports have 100.
	return fmt.Sprintf("Package: %s\nPin: release n=%s\nPin-Priority: 500\n", strings.Join(src, " "), suite)
}
