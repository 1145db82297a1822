import type { Ref } from '../../management/resources/members.ts';
import type { ReadableResource } from '../../management/resources/resource.ts';

/** Builds the absolute URIs in responses. */
export interface Links {
  /** URI of a path that starts with `/`. */
  to(path: string): string;
  of(resource: Pick<ReadableResource, 'path'>, id: string): string;
  ref(resource: Pick<ReadableResource, 'path'>, id: string): Ref;
  refOrNull(resource: Pick<ReadableResource, 'path'>, id: string | null): Ref | null;
}

/** @param baseUrl the origin at which clients reach the API, without a path: ngrok's Go client replaces paths */
export function createLinks(baseUrl: string): Links {
  const { origin } = new URL(baseUrl);
  const links: Links = {
    to: (path) => origin + path,
    of: ({ path }, id) => `${origin}${path}/${id}`,
    ref: (resource, id) => ({ id, uri: links.of(resource, id) }),
    refOrNull: (resource, id) => (id === null ? null : links.ref(resource, id)),
  };
  return links;
}
