r"""The conventions of this project, how those of others translate, and the bibliography.

Here, as in DLMF chapter 23, ``omega1`` and ``omega3`` are HALF-periods: the lattice is
:math:`\{2m\omega_1 + 2n\omega_3\}`, :math:`\tau = \omega_3/\omega_1` has a positive imaginary
part, and :math:`\omega_1 + \omega_2 + \omega_3 = 0`. The nome is :math:`q = e^{i\pi\tau}`, the
roots are :math:`e_k = \wp(\omega_k)`, the quasi-periods :math:`\eta_k = \zeta(\omega_k)`, so
that :math:`\zeta(z + 2\omega_k) = \zeta(z) + 2\eta_k` and
:math:`\eta_1\omega_3 - \eta_3\omega_1 = i\pi/2`. A full period is always called ``period1`` or
``period3``. The cubic is :math:`\wp'^2 = 4\wp^3 - g_2\wp - g_3`.

============= ====================== ================= ===================================
source        generators             tau               how it differs
============= ====================== ================= ===================================
here, DLMF    2 omega1, 2 omega3     omega3/omega1
mpmath        2 omega1, 2 omega2     omega2/omega1     its omega2 is our omega3; ``tau=``
                                                       means the full periods 1 and tau
python-flint  1, tau                 tau               full periods; no other scale
PARI          w1, w2                 w1/w2             full periods, w2 for our 2 omega1;
                                                       its quasi-periods are 2 zeta(w/2)
Mathematica   2 omega1, 2 omega3     not an argument   functions take {g2, g3};
                                                       ``WeierstrassHalfPeriods`` converts
R elliptic    2 omega1, 2 omega2     omega2/omega1     its omega2 is our omega3; replaces
                                                       the pair by a reduced one
============= ====================== ================= ===================================

mpmath has these functions from the 1.5 pre-releases on. Its ``omega1omega2from`` may choose an
imaginary omega1 for real invariants, where `Lattice.from_invariants` chooses a positive one.

- python-flint: :math:`\wp(z) = a^{-2}\,` ``elliptic_p(z/a, tau)`` with :math:`a = 2\omega_1`;
  :math:`\zeta` scales by :math:`a^{-1}`, :math:`\sigma` by :math:`a`, :math:`g_2` and
  :math:`g_3` by :math:`a^{-4}` and :math:`a^{-6}`. Its roots come in our order.
- PARI: ``w = ellinit([a, b]).omega`` is `Lattice.from_periods` ``(w[2], w[1])``; the curve
  :math:`y^2 = x^3 + ax + b` has :math:`g_2 = -4a`, :math:`g_3 = -4b`.

The lemniscatic lattice with :math:`g_2 = 1` has :math:`\omega_1 = 1.85407467\ldots`; the
lemniscate constant :math:`2.62205755\ldots` is the half-period for :math:`g_2 = 1/4`.

References
----------
Cited elsewhere by author and year, or by DLMF equation number alone.

- NIST Digital Library of Mathematical Functions, chapters 20 (theta functions), 22 (Jacobian
  elliptic functions) and 23 (Weierstrass elliptic and modular functions), dlmf.nist.gov.
- B. C. Carlson (1995), Numerical computation of real or complex elliptic integrals. Numerical
  Algorithms 10, 13-26. Periods and the inverse function as symmetric integrals.
- H. Cohen (1993), A Course in Computational Algebraic Number Theory. Springer GTM 138,
  chapter 7. Periods by the arithmetic-geometric mean; reduction of lattices.
- J. E. Cremona and T. Thongjunthug (2013), The complex AGM, periods of elliptic curves over C
  and complex elliptic logarithms. Journal of Number Theory 133, 2813-2841. Which square root
  to take when the mean is complex.
- T. J. Dekker (1971), A floating-point technique for extending the available precision.
  Numerische Mathematik 18, 224-242. Exact sums and products in pairs of floating numbers.
- F. Johansson (2018), Numerical evaluation of elliptic functions, elliptic integrals and
  modular forms. arXiv:1806.06725. The method behind FLINT's balls.
- C.-S. Lin and C.-L. Wang (2010), Elliptic functions, Green functions and the mean field
  equations on tori. Annals of Mathematics 172, 911-954. The Green function.
- E. T. Whittaker and G. N. Watson (1927), A Course of Modern Analysis, 4th edition. Cambridge
  University Press, chapters 20-22.

Examples
--------
>>> from wefpe_core import Lattice
>>> Lattice.from_periods(2, 2j) == Lattice(1, 1j) == Lattice.from_tau(1j, omega1=1)
True
"""
