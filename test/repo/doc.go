// Package repo holds the tree to the rules that ARCHITECTURE.md states and to what the documents say about it: who
// imports whom, the shape of services, comments, modules, the verbs of every kind, and that every path, symbol, make
// target and command named in a document exists.
//
// It has tests only. They read the tree and start nothing but, where it has been built, bin/trireme with --help. Every
// rule is a function from a tree to what is wrong with it, and is itself tested on a small bad tree in testdata.
package repo
