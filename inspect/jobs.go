package inspect

import (
	"context"
	"io"
	"slices"

	"github.com/rackless/rackless/topology"
)

// A Job is one host to be read.
type Job struct {
	Name string // for headings and messages
	Read func(ctx context.Context) (*topology.Host, error)
}

// Jobs are the hosts at some paths.
type Jobs struct {
	All    []Job
	Many   bool // several hosts were asked for, even if it is one in the end
	Joined int  // how many files were taken for texts of one host, unasked

	Close func() // releases what the jobs share; nil where that is nothing
}

// Done releases what the jobs share.
func (j *Jobs) Done() {
	if j.Close != nil {
		j.Close()
	}
}

// Grouping says which files are of one host. The zero value leaves it to their content.
type Grouping struct{ Together, Each bool }

// Select returns the hosts at paths, in their order. "-" is stdin, and no path this machine.
func Select(paths []string, stdin io.Reader, g Grouping) (jobs Jobs, err error) {
	if len(paths) == 0 {
		jobs.All = []Job{{"this machine", func(ctx context.Context) (*topology.Host, error) {
			return Read(ctx, Live())
		}}}
		return jobs, nil
	}
	jobs.Many = len(paths) > 1
	var files []string
	for _, p := range paths {
		// A directory is one machine where it has /sys and /proc, else a heap of files.
		list, err := listUnlessStdin(p)
		if err != nil {
			return Jobs{}, err
		}
		if list == nil {
			list = []string{p}
		} else {
			jobs.Many = true
		}
		files = append(files, list...)
	}
	if !slices.Contains(files, "-") && (g.Together || !g.Each && OneMachine(files)) {
		if !g.Together {
			jobs.Joined = len(files)
		}
		jobs.Many = false
		jobs.All = []Job{{files[0], func(ctx context.Context) (*topology.Host, error) {
			return ReadTogether(ctx, files)
		}}}
		return jobs, nil
	}
	for _, f := range files {
		jobs.All = append(jobs.All, Job{f, func(ctx context.Context) (*topology.Host, error) {
			if f == "-" {
				return ReadStream(ctx, stdin, "standard input")
			}
			return ReadFile(ctx, f)
		}})
	}
	return jobs, nil
}

func listUnlessStdin(path string) ([]string, error) {
	if path == "-" {
		return nil, nil
	}
	return List(path)
}

// ReadPath reads the host at a path; "-" is stdin. A directory without a machine in it is one host,
// told by all its files.
func ReadPath(ctx context.Context, path string, stdin io.Reader) (*topology.Host, error) {
	if path == "-" {
		return ReadStream(ctx, stdin, "standard input")
	}
	switch list, err := List(path); {
	case err != nil:
		return nil, err
	case list != nil:
		return ReadTogether(ctx, list)
	}
	return ReadFile(ctx, path)
}
