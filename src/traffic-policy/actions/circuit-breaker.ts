import { z } from 'zod';
import { durationBetween } from '../action-config.ts';
import type { ActionContext } from '../action-context.ts';
import { parseConfig } from '../action-problems.ts';
import { Circuit } from '../state/circuit.ts';
import { type PreparedAction, policyError } from '../steps.ts';

const Window = durationBetween(1000, 120_000);

const CircuitBreakerConfig = z.strictObject({
  error_threshold: z.number().min(0).max(1).optional(),
  volume_threshold: z.int().min(1).max(2_000_000_000).optional(),
  window_duration: Window.optional(),
  tripped_duration: Window.optional(),
  // The number is always ten.
  num_buckets: z.literal(10).optional(),
  enforce: z.boolean().optional(),
});

/** Names of the same members in the edges API and in old agents. */
const ALIASES: Readonly<Record<string, string>> = {
  error_threshold_percentage: 'error_threshold',
  rolling_window: 'window_duration',
};

const OPEN = policyError(503, 'ERR_NGROK_3202', 'The upstream of this endpoint is failing; try again later.');

const FIRST_FAILURE = 500;

export function circuitBreaker(config: unknown, context: ActionContext): PreparedAction {
  const {
    error_threshold: errorThreshold = 0.5,
    volume_threshold: volumeThreshold = 10,
    window_duration: windowMs = 10_000,
    tripped_duration: trippedMs = 10_000,
    enforce = true,
  } = parseConfig(CircuitBreakerConfig, withTodaysNames(config));
  const options = { errorThreshold, volumeThreshold, windowMs, trippedMs };
  const { clock, state } = context.ports;
  const circuit = state.keep(Circuit, [context.place, options], () => new Circuit(options));
  return {
    ends: false,
    on_http_request: () => (request) => {
      // A probe would use up the one request that tries whether the upstream works again.
      if (!enforce || request.isProbe) return undefined;
      const ticket = circuit.admit(clock.now());
      if (ticket === null) return OPEN;
      request.watchers ??= [];
      request.watchers.push((status) =>
        circuit.record(ticket, status === null || status >= FIRST_FAILURE, clock.now()),
      );
      return undefined;
    },
  };
}

/** Renames old members. An old name next to the current one stays, and is rejected as unknown. */
function withTodaysNames(config: unknown): unknown {
  if (typeof config !== 'object' || config === null || Array.isArray(config)) return config;
  const today = (name: string) => {
    const alias = ALIASES[name];
    return alias === undefined || alias in config ? name : alias;
  };
  return Object.fromEntries(Object.entries(config).map(([name, value]) => [today(name), value]));
}
