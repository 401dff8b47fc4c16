package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/image"
	"github.com/rackless/rackless/images"
	"github.com/rackless/rackless/internal/terminal"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/vm"
)

func newImageCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "List, build and remove node images and the templates made from them",
		Long: `A node image is a kernel and an initial file system, built from Debian packages that the machine's
apt offers; nothing of them is installed. A template is a booted machine of one shape, of which
nodes are copies. Both are made by up when they are missing, kept in the cache, and can be removed
at any time: running nodes keep what they use.`,
		Example: `  rackless image ls
  rackless image build`,
	}
	cmd.AddCommand(newImageLsCmd(a), newImageBuildCmd(a), newImageRmCmd(a))
	return cmd
}

func newImageLsCmd(a *app) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the images and templates in the cache, and whether they are whole",
		Long: `Lists images with their templates below them. Every image is read and compared with the sums that
were noted when it was built. The image marked with * is the one that up would use; after an upgrade
of rackless or of Debian's release that is another.`,
		Example: `  rackless image ls
  rackless image ls -o json`,
		Args: exactArgs(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := a.dirs()
			if err != nil {
				return err
			}
			out, err := images.List(cmd.Context(), d)
			if err != nil {
				return err
			}
			return a.list(format, out, func() error {
				if len(out.Images)+len(out.Templates) == 0 {
					fmt.Fprintf(a.out, "no image in %s; up builds one, or: rackless image build\n", d.Cache)
					return nil
				}
				_, err := fmt.Fprint(a.out, imageGrid(out, time.Now()))
				return err
			})
		},
	}
	outputFlag(cmd, &format)
	return cmd
}

func imageGrid(out images.Listing, now time.Time) *show.Grid {
	g := show.NewGrid("key", "what", "state", "kernel", "shape", "size>", "made")
	age := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return words.Ago(now.Sub(*t)) + " ago"
	}
	template := func(t images.Template) {
		shape := ""
		if t.CPUs > 0 {
			shape = fmt.Sprintf("%s, %s, %s, %s", words.Count(t.CPUs, "CPU"), words.Bytes(t.Memory),
				words.Count(t.NICs, "NIC"),
				t.Accelerator)
		}
		g.Add("  "+t.Key, "template", t.State, "", shape, words.Bytes(t.Bytes), age(t.Made))
	}
	for _, i := range out.Images {
		mark := " "
		if i.Current {
			mark = "*"
		}
		g.Add(mark+" "+i.Key, "image", i.State, i.Kernel, i.Release, words.Bytes(i.Bytes), age(i.Built))
		for _, t := range i.Templates {
			template(t)
		}
	}
	for _, t := range out.Templates {
		template(t)
	}
	return g
}

// buildOutput is what image build prints as JSON, see docs/json.md.
type buildOutput struct {
	Key    string `json:"key"`
	Dir    string `json:"dir"`
	Kernel string `json:"kernel"`
}

func newImageBuildCmd(a *app) *cobra.Command {
	var format, kernel string
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the node image now, so that the first up is fast",
		Long: `Builds the image that up would use, unless the cache has it whole. Packages are downloaded with
apt-get and unpacked without privileges: about 50 MB, a minute. The key of the image is printed.`,
		Example: `  rackless image build
  rackless image build --kernel /boot/vmlinuz-$(uname -r)`,
		Args: exactArgs(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := a.dirs()
			if err != nil {
				return err
			}
			ui := terminal.NewDisplay(a.err, a.env)
			defer ui.Close()
			p := &rack.Progress{Report: ui.Event}
			p.Begin("image")
			img, err := image.Node.Ensure(cmd.Context(), image.Options{Cache: d.Images(), Kernel: kernel,
				Progress: func(s string) {
					p.Note("%s", s)
				}})
			p.End(err)
			ui.Close()
			if err != nil {
				return err
			}
			return a.list(format, buildOutput{img.Key, img.Dir, img.KernelVer}, func() error {
				_, err := fmt.Fprintln(a.out, img.Key)
				return err
			})
		},
	}
	outputFlag(cmd, &format)
	cmd.Flags().StringVar(&kernel, "kernel", "",
		"kernel image to use instead of Debian's; its modules are in /lib/modules or beside it")
	return cmd
}

func newImageRmCmd(a *app) *cobra.Command {
	var all, templates, force bool
	cmd := &cobra.Command{
		Use:   "rm KEY... | --all",
		Short: "Remove images with their templates from the cache",
		Long: `Removes images and the templates made from them, or with --templates only the latter. A key can also
be that of a template. What a running lab was made from is kept without --force: its nodes would run
on, but repairing it would build the image again.`,
		Example: `  rackless image rm 8c41225de07c4423
  rackless image rm --all --templates`,
		Args: func(cmd *cobra.Command, args []string) error {
			if all != (len(args) == 0) {
				return usagef(cmd, "want keys, which rackless image ls shows, or --all")
			}
			return nil
		},
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := a.dirs()
			if err != nil {
				return err
			}
			return a.removeImages(cmd.Context(), d, args, all, templates, force)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "everything in the cache")
	cmd.Flags().BoolVar(&templates, "templates", false, "only templates")
	cmd.Flags().BoolVar(&force, "force", false, "also what a running lab was made from")
	return cmd
}

func (a *app) removeImages(ctx context.Context, d rack.Dirs, keys []string, all, onlyTemplates, force bool) error {
	have, err := images.List(ctx, d)
	if err != nil {
		return err
	}
	var named []string   // images by key
	var orphans []string // templates by their own key
	known := func(key string) bool {
		return slices.ContainsFunc(have.Images, func(e images.Item) bool { return e.Key == key })
	}
	if all {
		for _, e := range have.Images {
			keys = append(keys, e.Key)
		}
		for _, t := range have.Templates {
			keys = append(keys, t.Key)
		}
	}
	list, err := vm.Cache{Dir: d.Templates()}.List()
	if err != nil {
		return err
	}
	for _, key := range keys {
		switch {
		case known(key):
			named = append(named, key)
		case slices.ContainsFunc(list, func(t vm.Listed) bool { return t.Key == key }):
			orphans = append(orphans, key)
		default:
			return fmt.Errorf("image %s: not in the cache: see rackless image ls", key)
		}
	}
	if !force {
		if err := unused(d, named); err != nil {
			return err
		}
	}
	gone, err := vm.Cache{Dir: d.Templates()}.Remove(ctx, func(t vm.Listed) bool {
		return slices.Contains(named, t.Image) || slices.Contains(orphans, t.Key)
	})
	for _, t := range gone {
		fmt.Fprintf(a.out, "removed template %s\n", t.Key)
	}
	if err != nil || onlyTemplates {
		return err
	}
	for _, key := range named {
		if err := image.Remove(ctx, d.Images(), key); err != nil {
			return err
		}
		fmt.Fprintf(a.out, "removed image %s\n", key)
	}
	return nil
}

// unused refuses images that running labs were made from.
func unused(d rack.Dirs, images []string) error {
	racks, err := rack.OpenAll(d)
	errs := []error{err}
	for _, r := range racks {
		if slices.Contains(images, r.State.Image) {
			errs = append(errs, fmt.Errorf("lab %s was made from image %s: rackless down %s first, or say --force",
				r.Lab.Name, r.State.Image, r.Lab.Name))
		}
	}
	return errors.Join(errs...)
}

// completeImages offers the keys of images.
func (a *app) completeImages(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	d, err := a.dirs()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	dirs, err := os.ReadDir(d.Images()) // and not List, which reads every byte
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var keys []string
	for _, e := range dirs {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !slices.Contains(args, e.Name()) {
			keys = append(keys, e.Name())
		}
	}
	return keys, cobra.ShellCompDirectiveNoFileComp
}
