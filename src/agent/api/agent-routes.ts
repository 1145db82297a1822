import { isUtf8 } from 'node:buffer';
import { type ErrorRequestHandler, type Request, type RequestHandler, type Response, Router } from 'express';
import { z } from 'zod';
import { messageOf } from '../../lib/errors.ts';
import { answerErrors, bodyParser } from '../../lib/http/api-middleware.ts';
import { JsonTextError, parseJson } from '../../lib/json-text.ts';
import type { Log } from '../../lib/log/log.ts';
import { problemsOf, validationMessage } from '../../lib/validation-messages.ts';
import { AgentError } from '../errors/agent-error.ts';

/** A method on a path, with what it takes and answers. */
export interface ApiRoute {
  method: 'get' | 'post' | 'put' | 'patch' | 'delete';
  /** `{url_part}` stands for a tunnel, `{id}` for a captured request or a share link. */
  path: string;
  /** Without one, every query parameter is refused. */
  query?: z.ZodType;
  body?: z.ZodType;
  /** Bytes of the body, where it may not have the usual 256 KiB. */
  maxBody?: number;
  /** Null: 204 without a body. A text: the handler writes the answer, with this content type. */
  answer: z.ZodType | ContentType | null;
}

type ContentType = 'text/plain' | 'text/event-stream' | 'application/json' | 'application/octet-stream';

/** A request whose path may name a tunnel and a captured request. */
export type RequestOfOne = Request<Record<'url_part' | 'id', string>>;

/** A request for a route; its input is as the route's schemas return it. */
interface Call<R extends ApiRoute> {
  query: R extends { query: infer Q extends z.ZodType } ? z.output<Q> : unknown;
  body: R extends { body: infer B extends z.ZodType } ? z.output<B> : unknown;
  req: RequestOfOne;
  res: Response;
}

type Answer<R extends ApiRoute> = R['answer'] extends infer A extends z.ZodType ? z.output<A> : unknown;

export type Handlers<Table extends Readonly<Record<string, ApiRoute>>> = {
  [Id in keyof Table]: (call: Call<Table[Id]>) => Answer<Table[Id]> | Promise<Answer<Table[Id]>>;
};

const NO_QUERY = querySchema({});
const MAX_BODY = 256 * 1024;

/**
 * Serves a table of routes: parses the query, then the body, and sends what the handler returns. Unsupported methods on
 * the table's paths answer 405.
 *
 * @param guards run before a body is read, for requests that change something
 */
export function serve<Table extends Readonly<Record<string, ApiRoute>>>(
  table: Table,
  handlers: Handlers<NoInfer<Table>>,
  guards: RequestHandler[] = [],
): Router {
  const router = Router();
  const routes = Object.entries(table);
  for (const path of new Set(routes.map(([, route]) => route.path))) {
    const served = router.route(path.replaceAll(/\{(\w+)\}/g, ':$1'));
    const methods: string[] = [];
    for (const [id, route] of routes.filter(([, { path: its }]) => its === path)) {
      const { method, body, maxBody = MAX_BODY } = route;
      methods.push(method === 'get' ? 'GET, HEAD' : method.toUpperCase());
      const before = [...(method === 'get' ? [] : guards), ...(body ? jsonBody(maxBody) : [])];
      served[method](checkQuery(route), ...before, answerWith(route, handlers[id] as Handlers<Table>[string]));
    }
    served.all(methodNotAllowed(methods.join(', ')));
  }
  return router;
}

function checkQuery({ query = NO_QUERY }: ApiRoute): RequestHandler {
  return (req, res, next) => {
    res.locals.query = parseInput(query, req.query);
    next();
  };
}

/** Reads a JSON body into `req.body`. Any other content type is refused: a web page could send it from a form. */
function jsonBody(maxBytes: number): RequestHandler[] {
  return [
    (req, _res, next) => {
      const { 'content-type': type, 'content-encoding': encoding = 'identity' } = req.headers;
      if (type === undefined || !/^application\/json[ \t]*(?:;|$)/i.test(type)) {
        throw unsupported(`send Content-Type: application/json, not ${type ?? 'a body without a content type'}`);
      }
      if (!/^utf-?8$/i.test(/;\s*charset="?([^";\s]*)/i.exec(type)?.[1] ?? 'utf-8')) {
        throw unsupported('send JSON in UTF-8');
      }
      if (encoding.toLowerCase() !== 'identity') throw unsupported(`send the body uncompressed, without ${encoding}`);
      next();
    },
    bodyParser({
      maxBytes,
      parse: parseBody,
      unreadable: (problem, cause) =>
        problem === 'too large'
          ? new AgentError('ERR_AGENT_BODY_TOO_LARGE', `the body is larger than ${maxBytes / 1024} KiB`)
          : new AgentError('ERR_AGENT_INVALID_REQUEST', messageOf(cause), { cause }),
    }),
  ];
}

/** Unlike Express, names the place of a syntax error and refuses bytes that are not UTF-8. */
function parseBody(bytes: Buffer): unknown {
  if (!isUtf8(bytes)) throw new AgentError('ERR_AGENT_MALFORMED_JSON', 'the body is not JSON in UTF-8');
  try {
    return parseJson(new TextDecoder().decode(bytes));
  } catch (error) {
    if (!(error instanceof JsonTextError)) throw error;
    throw new AgentError('ERR_AGENT_MALFORMED_JSON', `the body is not JSON: ${error.message}`, {
      details: { [error.place]: error.problem },
      cause: error,
    });
  }
}

function unsupported(problem: string): AgentError {
  return new AgentError('ERR_AGENT_UNSUPPORTED_MEDIA_TYPE', problem);
}

function answerWith(
  { body, answer }: ApiRoute,
  handler: (call: Call<ApiRoute>) => unknown,
): RequestHandler<Record<'url_part' | 'id', string>> {
  return async (req, res) => {
    const { query } = res.locals;
    const result = await handler({ query, body: body && parseInput(body, req.body), req, res });
    if (answer === null) res.status(204).end();
    else if (typeof answer !== 'string') res.json(result);
  };
}

/** @throws {AgentError} 400 that lists everything the schema finds wrong */
export function parseInput<T extends z.ZodType>(schema: T, input: unknown): z.output<T> {
  const parsed = schema.safeParse(input, { error: validationMessage });
  if (parsed.success) return parsed.data;
  const details = problemsOf(parsed.error);
  const [[place, problem] = [], ...others] = Object.entries(details);
  const more = others.length > 0 ? ` (and ${others.length} more, see details)` : '';
  throw new AgentError('ERR_AGENT_INVALID_REQUEST', `${place}: ${problem}${more}`, { details });
}

/** Describes the query parameters of a path; all others are refused. */
export function querySchema<Shape extends z.core.$ZodLooseShape>(shape: Shape) {
  const names = Object.keys(shape).join(', ') || 'none';
  return z.strictObject(shape, {
    error: ({ code }) => (code === 'unrecognized_keys' ? `unknown query parameter; supported: ${names}` : undefined),
  });
}

/** Answers requests for paths that no router serves. */
export const noSuchPath: RequestHandler = (req) => {
  throw new AgentError('ERR_AGENT_NO_SUCH_PATH', `no such path: ${req.path}`);
};

/** Answers unsupported methods on a known path; `allowed` is the value of the header Allow. */
function methodNotAllowed(allowed: string): RequestHandler {
  return (req, res) => {
    res.set('Allow', allowed);
    throw new AgentError('ERR_AGENT_METHOD_NOT_ALLOWED', `${req.method} is not supported here; supported: ${allowed}`);
  };
}

/** Turns errors of handlers into answers. */
export function errorHandler(log: Log): ErrorRequestHandler {
  return answerErrors({
    translate: fromExpress,
    log: (error, known, { method, path }) => {
      if (!known) log.error({ err: error, method, path }, 'unexpected error in the API');
      else if (known.status === 500) log.error({ reason: known.message, path }, 'API request failed');
    },
    internal: () => new AgentError('ERR_AGENT_INTERNAL', 'internal error: see the log of the agent'),
  });
}

/** Express puts a status on errors that are the client's, such as a malformed percent-encoding. */
function fromExpress(error: unknown): AgentError | null {
  if (!(error instanceof Error) || !('status' in error) || error.status !== 400) return null;
  return new AgentError('ERR_AGENT_INVALID_REQUEST', error.message, { cause: error });
}
