//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/report/tables"
	"github.com/rackless/rackless/vm/image"
	"github.com/rackless/rackless/vm/images"
)

// newImageCmd fills or empties caches on purpose, for example in CI; up does not need it.
func newImageCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "List, build, export, import and remove node images and the templates made from them",
	}
	cmd.AddCommand(newImageLsCmd(a), newImageBuildCmd(a), newImageExportCmd(a), newImageImportCmd(a), newImageRmCmd(a))
	return cmd
}

func newImageLsCmd(a *app) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the images and templates in the cache, and whether they are whole",
		Args:    cli.ExactArgs(0, "no argument"),
		RunE: a.inDirs(func(ctx context.Context, d rack.Dirs, _ []string) error {
			out, err := images.List(ctx, d)
			if err != nil {
				return err
			}
			if len(out.Images)+len(out.Templates) == 0 {
				return a.print(format, out, "no image in "+d.Cache+"; up builds one, or: rackless image build\n")
			}
			return a.print(format, out, tables.Images(out, time.Now()))
		}),
	}
	outputFlag(cmd, &format)
	return cmd
}

type buildOutput struct {
	Key    string `json:"key"`
	Dir    string `json:"dir"`
	Kernel string `json:"kernel"`
}

func newImageBuildCmd(a *app) *cobra.Command {
	var format, kernel, arch string
	cmd := &cobra.Command{
		Use:   "build [IMAGE]",
		Short: "Build a node image now, so that the first up is fast",
		Args:  cli.MaxArgs(1, "at most one image"),
		RunE: a.inDirs(func(ctx context.Context, d rack.Dirs, args []string) error {
			k, err := image.Named(append(args, lab.DefaultImage)[0], arch)
			if err != nil {
				return &cli.Error{Code: exitUsage, Err: err}
			}
			var img *image.Image
			if err := a.inCache(d, func(o image.Options) error {
				o.Kernel = kernel
				img, err = k.Ensure(ctx, o)
				return err
			}); err != nil {
				return err
			}
			return a.print(format, buildOutput{img.Key, img.Dir, img.KernelVer}, img.Key+"\n")
		}),
	}
	outputFlag(cmd, &format)
	cmd.Flags().StringVar(&kernel, "kernel", "",
		"kernel image to use instead of Debian's; its modules are in /lib/modules or beside it")
	cmd.Flags().StringVar(&arch, "arch", "", archUsage)
	return cmd
}

const archUsage = "architecture of the nodes, amd64 or arm64 (default: that of this machine)"

func (a *app) inCache(d rack.Dirs, do func(o image.Options) error) error {
	p, end := a.progress()
	defer end()
	p.Begin("image")
	err := do(image.Options{Cache: d.Images(), Progress: p.Say, Watch: p.Watch})
	p.End(err)
	return err
}

func newImageExportCmd(a *app) *cobra.Command {
	var format string
	var g images.Cargo
	cmd := &cobra.Command{
		Use:   "export FILE [IMAGE...]",
		Short: "Write QEMU and node images into one file, for machines that cannot build them",
		Args:  cli.RangeArgs(1, 9, "a FILE to write, and images"),
		RunE: a.inDirs(func(ctx context.Context, d rack.Dirs, args []string) error {
			if g.File, g.Names = args[0], args[1:]; len(g.Names) == 0 {
				g.Names = []string{lab.DefaultImage}
			}
			var c images.Carried
			if err := a.inCache(d, func(o image.Options) (err error) {
				c, err = images.Export(ctx, g, o)
				return err
			}); err != nil {
				return err
			}
			return a.print(format, c, c.Digest+"\n")
		}),
	}
	outputFlag(cmd, &format)
	cmd.Flags().StringVar(&g.Key, "key", "", "sign with the private key in this `FILE` (PEM, Ed25519)")
	cmd.Flags().StringVar(&g.Arch, "arch", "", strings.Replace(archUsage, "this machine", "--host-arch", 1))
	cmd.Flags().StringVar(&g.Host, "host-arch", "",
		"architecture of the machines that the file is for, amd64 or arm64 (default: that of this machine)")
	cli.Renamed(cmd, "host", "", "host-arch")
	return cmd
}

func newImageImportCmd(a *app) *cobra.Command {
	var format, key, digest string
	cmd := &cobra.Command{
		Use:     "import FILE|URL",
		Aliases: []string{"pull"},
		Short:   "Import QEMU and node images from a file into the cache, once they are verified",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || key == "" && digest == "" {
				return cli.Usagef(cmd, "want one FILE or URL, and what to verify it by: --digest or --key; "+
					"the digest of a release's file is in FILE.digest beside it")
			}
			return nil
		},
		RunE: a.inDirs(func(ctx context.Context, d rack.Dirs, args []string) error {
			var c images.Carried
			if err := a.inCache(d, func(o image.Options) (err error) {
				c, err = images.Import(ctx, args[0], digest, key, o)
				return err
			}); err != nil {
				return err
			}
			var text strings.Builder
			for _, i := range c.Images {
				fmt.Fprintf(&text, "imported %s (%s)\n", i.Key, i.Name)
			}
			return a.print(format, c, text.String())
		}),
	}
	outputFlag(cmd, &format)
	cmd.Flags().StringVar(&key, "key", "", "`FILE` with the public key of the signer of the images (PEM, Ed25519)")
	cmd.Flags().StringVar(&digest, "digest", "", "digest that export has printed (sha256:...)")
	return cmd
}

func newImageRmCmd(a *app) *cobra.Command {
	var o images.RemoveOptions
	var force bool
	cmd := &cobra.Command{
		Use:   "rm KEY... | --all",
		Short: "Remove images with their templates from the cache",
		Args: func(cmd *cobra.Command, args []string) error {
			if o.All != (len(args) == 0) {
				return cli.Usagef(cmd, "want keys, which rackless image ls shows, or --all")
			}
			return nil
		},
		ValidArgsFunction: a.completeImages,
		RunE: a.inDirs(func(ctx context.Context, d rack.Dirs, keys []string) error {
			var err error
			if !force {
				if o.Users, err = rack.ImageUsers(d); err != nil {
					return err
				}
			}
			gone, err := images.Remove(ctx, d, keys, o)
			for _, what := range gone {
				fmt.Fprintf(a.out, "removed %s\n", what)
			}
			return err
		}),
	}
	cmd.Flags().BoolVar(&o.All, "all", false, "everything in the cache")
	cmd.Flags().BoolVar(&o.TemplatesOnly, "templates", false, "only templates")
	cmd.Flags().BoolVar(&force, "force", false, "even if a running lab was made from it")
	return cmd
}

func (a *app) completeImages(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.offered(args, images.Keys, cobra.ShellCompDirectiveNoFileComp)
}
