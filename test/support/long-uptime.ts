import { UPTIME_MS } from './uptime.ts';

// Every test runs in what looks like a process that has been up for long. Files that share a process load this more than once.
const now = performance.now.bind(performance);
if (now() < UPTIME_MS) performance.now = () => now() + UPTIME_MS;
