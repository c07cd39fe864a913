package framework

// CopyTo makes into, which must be empty, the same cluster, to be changed at will.
func (s *Snapshot) CopyTo(into *Snapshot) {
	for _, n := range s.columns.Nodes {
		into.Put(n)
	}
	into.SetNamespaces(s.namespaces)
	into.SetBooks(s.books.Clone())
	into.Settle()
}
