package main

// trials are the tests that bring their own load or rig.
var trials = []trial{}
