/** Formats a duration for people, such as `45 s`, `12 min`, `3 h` or `5 d`. */
export function durationText(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 120) return `${whole} s`;
  if (whole < 7_200) return `${Math.floor(whole / 60)} min`;
  return whole < 172_800 ? `${Math.floor(whole / 3_600)} h` : `${Math.floor(whole / 86_400)} d`;
}
