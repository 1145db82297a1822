/**
 * Milliseconds that clocks show when a test starts: more than 31 bits hold. Code that takes 0 for the present, as it is in a
 * young process, fails.
 */
export const UPTIME_MS = 40 * 24 * 3_600_000;
