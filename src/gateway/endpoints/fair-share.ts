/**
 * Finds what makes room when everything is taken: the newest one of the authtoken with the most.
 *
 * @param held in order of age
 * @param claimantId id of the authtoken that wants one more
 * @returns null when the claimant would then have as many, so that no authtoken can take all
 */
export function newestOfLargestShare<T>(
  held: Iterable<T>,
  credentialOf: (one: T) => string,
  claimantId: string,
): T | null {
  const shares = new Map<string, T[]>();
  for (const one of held) {
    const id = credentialOf(one);
    const others = shares.get(id);
    if (others) others.push(one);
    else shares.set(id, [one]);
  }
  const own = shares.get(claimantId)?.length ?? 0;
  const [most = []] = [...shares.values()].sort((one, other) => other.length - one.length);
  return most.length > own + 1 ? (most.at(-1) ?? null) : null;
}
