import { z } from 'zod';

/** ngrok's limit, in bytes of UTF-8. */
const MAX_METADATA = 4096;

const PROXY_VERSIONS = { '1': '1', '2': '2' } as const;

/** What an endpoint can ask for beside its address and its policy; members of `POST /tunnels`, where null counts as not sent. */
export const EndpointOptions = z.object({
  binding: z
    .enum(['public', 'internal'], { error: 'must be public or internal' })
    .nullish()
    .meta({
      description: 'internal: reached only by policies of other tunnels; needs a domain below .internal.',
    })
    .transform(set)
    .optional(),
  app_protocol: z
    .enum(['http1', 'http2'], { error: 'must be http1 or http2' })
    .nullish()
    .meta({ description: 'What the upstream of an http tunnel speaks; http2 from the first byte, as for gRPC.' })
    .transform(set)
    .optional(),
  pooling: z
    .boolean({ error: 'must be true or false' })
    .nullish()
    .meta({ description: 'Shares the URL in turns with tunnels of other agents that also ask for it.' })
    .transform((pooling) => set(pooling || null))
    .optional(),
  metadata: z
    .string({ error: 'must be text' })
    .refine((text) => Buffer.byteLength(text) <= MAX_METADATA, `is longer than ${MAX_METADATA} bytes`)
    .nullish()
    .meta({ description: `Text for programs, which the gateway lists; at most ${MAX_METADATA} bytes of UTF-8.` })
    .transform(set)
    .optional(),
  proxy_proto: z
    .union([z.enum(['1', '2']), z.literal([1, 2])], { error: 'must be 1 or 2' })
    .nullish()
    .meta({ description: 'Version of the PROXY header that starts each connection to the upstream.' })
    .transform((version) => set(version && PROXY_VERSIONS[version]))
    .optional(),
});
export type EndpointOptions = z.output<typeof EndpointOptions>;

/** Those of a stored tunnel; empty when this version does not support them. */
export function optionsOf(tunnel: object): EndpointOptions {
  return EndpointOptions.safeParse(tunnel).data ?? {};
}

/** Whether connections to the upstream begin with a request of HTTP/1.1, so that the agent can read and send some. */
export function beginsWithHttp1({ protocol, ...options }: { protocol: string }): boolean {
  const { app_protocol, proxy_proto } = optionsOf(options);
  return protocol === 'http' && app_protocol !== 'http2' && proxy_proto === undefined;
}

function set<T>(value: T | null | undefined): T | undefined {
  return value ?? undefined;
}
