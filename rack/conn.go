package rack

import "sync"

// A Conn is a lab's connection to what has its nodes. It is made once it is needed. One that could not be made is not
// tried again: Status asks for each node, and a server that does not answer would take the time limit for each. The
// zero value is ready.
type Conn[T any] struct {
	mu   sync.Mutex
	conn *T
	err  error // why there is none
}

// Open returns the connection, which dial makes the first time.
func (c *Conn[T]) Open(dial func() (*T, error)) (*T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil && c.err == nil {
		c.conn, c.err = dial()
	}
	return c.conn, c.err
}

// Close ends the connection by end, if there is one.
func (c *Conn[T]) Close(end func(*T) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.conn
	if c.conn = nil; conn == nil {
		return nil
	}
	return end(conn)
}
