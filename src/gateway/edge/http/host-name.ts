/**
 * The name in a Host header or SNI, as endpoints are registered: in lower case, without port, and without the trailing dot
 * of an absolute name.
 */
export function hostNameOf(host: string): string {
  const colon = host.indexOf(':', host.startsWith('[') ? host.indexOf(']') : 0);
  let name = colon === -1 ? host : host.slice(0, colon);
  if (name.endsWith('.')) name = name.slice(0, -1);
  return name.toLowerCase();
}
