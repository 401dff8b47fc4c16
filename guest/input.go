package guest

import (
	"context"
	"fmt"
	"io"
)

// maxInput bounds the standard input of a command: it goes to the guest agent in one message.
const maxInput = 16 << 20

// ReadInput reads all of the input. It gives up when ctx ends: a pipe that nobody closes would hold
// the program for ever.
func ReadInput(ctx context.Context, in io.Reader) ([]byte, error) {
	type result struct {
		data []byte
		err  error
	}
	// Buffered, so that the reader ends even if nobody waits for it any more.
	ch := make(chan result, 1)
	go func() {
		b, err := io.ReadAll(io.LimitReader(in, maxInput+1))
		ch <- result{b, err}
	}()
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("read standard input: %w (-n leaves it alone)", context.Cause(ctx))
	case r := <-ch:
		if r.err != nil {
			return nil, fmt.Errorf("read standard input: %w", r.err)
		}
		if len(r.data) > maxInput {
			return nil, fmt.Errorf("read standard input: more than %d MiB, which is all that the guest agent "+
				"takes at once", maxInput>>20)
		}
		return r.data, nil
	}
}
