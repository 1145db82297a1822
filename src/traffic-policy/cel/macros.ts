import { parse } from '@bufbuild/cel';
import { type CallExpr, type ComprehensionExpr, callOf, type Expr } from './syntax.ts';

/**
 * Translates `list.sortBy(x, key)` in place into a call with the list and the list of its keys.
 *
 * @returns whether the call was that macro
 */
export function expandSortBy(call: CallExpr): boolean {
  const { target, args } = call;
  const variable = args[0]?.exprKind;
  const key = args[1];
  if (call.function !== 'sortBy' || target === undefined || args.length !== 2 || key === undefined) return false;
  if (variable?.case !== 'identExpr') return false;
  call.function = '@sortBy';
  delete call.target;
  call.args = [target, mapOf(target, variable.value.name, key)];
  return true;
}

/** `list.map(name, element)` as a tree. */
function mapOf(list: Expr, name: string, element: Expr): Expr {
  const map = parse(`[].map(${name}, element)`).expr;
  if (map.exprKind.case !== 'comprehensionExpr') throw new Error('a comprehension was expected');
  const loop = map.exprKind.value;
  loop.iterRange = list;
  const step = loop.loopStep?.exprKind;
  const appended = step?.case === 'callExpr' ? step.value.args[1]?.exprKind : undefined;
  if (appended?.case !== 'listExpr') throw new Error('map was expected to append a list');
  appended.value.elements[0] = element;
  return map;
}

/**
 * Charges the budget for the elements of the range and for every iteration, so that loops end with it.
 *
 * @param cost of one iteration, in units of the budget
 */
export function limitLoop(loop: ComprehensionExpr, cost: number): void {
  const { iterRange, loopCondition } = loop;
  if (loopCondition === undefined || iterRange === undefined) throw new Error('a loop was expected');
  const tick = callOf('@tick', [parse(String(cost)).expr]);
  loop.loopCondition = callOf('_&&_', [tick, loopCondition]);
  loop.iterRange = callOf('@range', [iterRange]);
}
